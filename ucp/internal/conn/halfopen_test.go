package conn

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fill adds connections of a source until the limit, and returns their number.
func fill(h *HalfOpen[int], from Source, first int, now time.Duration) (n int) {
	for h.Room(from) {
		h.Add(first+n, from, now)
		n++
	}
	return n
}

func TestHalfOpen_LimitsEachSource(t *testing.T) {
	var h HalfOpen[int]
	assert.Equal(t, maxHalfOpenWorker, fill(&h, Source{"a", 1}, 1, 0))
	assert.Equal(t, maxHalfOpenWorker, fill(&h, Source{"a", 2}, 1001, 0))
	assert.Zero(t, fill(&h, Source{"a", 3}, 2001, 0), "the host has its maximum")
	assert.Equal(t, maxHalfOpenWorker, fill(&h, Source{"b", 1}, 3001, 0), "the same worker at another host")
	assert.Equal(t, maxHalfOpenWorker, fill(&h, Source{"c", 1}, 4001, 0))
	assert.Equal(t, MaxHalfOpen, h.Len())
	assert.Zero(t, fill(&h, Source{"d", 1}, 5001, 0))
	require.True(t, h.Remove(1))
	assert.False(t, h.Remove(1))
	assert.Equal(t, 1, fill(&h, Source{"d", 1}, 5001, 0))
	require.True(t, h.Remove(5001))
	assert.Len(t, h.hosts, 3, "hosts and workers without connections are removed")
	assert.Len(t, h.workers, 4)
	for len(h.all) > 0 {
		require.True(t, h.Remove(h.all[0].e))
	}
	assert.Empty(t, h.hosts)
	assert.Empty(t, h.workers)
}

// TestHalfOpen_OneLeaves: when one is removed, another one of its host can be added.
func TestHalfOpen_OneLeaves(t *testing.T) {
	var h HalfOpen[int]
	fill(&h, Source{"a", 1}, 1, 0)
	fill(&h, Source{"a", 2}, 1001, 0)
	require.Equal(t, maxHalfOpenHost, h.Len())
	require.True(t, h.Remove(1))
	assert.Equal(t, 1, fill(&h, Source{"a", 3}, 2001, 0))
	require.True(t, h.Remove(1001))
	assert.Equal(t, 1, fill(&h, Source{"a", 2}, 3001, 0), "and of its worker")
	h = HalfOpen[int]{}
	assert.Equal(t, maxHalfOpenWorker, fill(&h, Source{"a", 1}, 1, 0))
	require.True(t, h.Remove(1))
	assert.Equal(t, 1, fill(&h, Source{"a", 1}, 1, 0))
	_, ok := new(HalfOpen[int]).Victim(Source{"a", 1}, time.Hour)
	assert.False(t, ok, "there is none")
}

func TestHalfOpen_EvictsTheOldestOfTheSourceThatHasMost(t *testing.T) {
	var h HalfOpen[int]
	const now = time.Hour
	for i := range maxHalfOpenHost { // a host with its maximum, each of another worker
		h.Add(i, Source{"a", uint64(i)}, now)
	}
	_, ok := h.Victim(Source{"a", 5000}, now+evictAfter-1)
	assert.False(t, ok, "it is too young")
	assert.Equal(t, now+evictAfter, h.EvictableAt())
	e, ok := h.Victim(Source{"a", 5000}, now+evictAfter)
	assert.True(t, ok)
	assert.Equal(t, 0, e)

	var two HalfOpen[int]
	two.Add(0, Source{"b", 1}, now-2)
	two.Add(1, Source{"a", 1}, now-1)
	assert.Equal(t, now-2+evictAfter, two.EvictableAt())
	for i := range maxHalfOpenHost - 1 {
		two.Add(2+i, Source{"a", uint64(i)}, now)
	}
	e, ok = two.Victim(Source{"a", 5000}, now+evictAfter)
	assert.True(t, ok)
	assert.Equal(t, 1, e, "the host has its maximum")

	require.True(t, h.Room(Source{"b", 1}))
	h.all[0].from.Host = "b" // the oldest one is of another host
	h.hosts["a"]--
	h.hosts["b"]++
	for i := range MaxHalfOpen - maxHalfOpenHost {
		h.Add(10000+i, Source{string(rune('0' + i/100)), uint64(i / 100)}, now)
	}
	require.Equal(t, MaxHalfOpen, h.Len())
	e, ok = h.Victim(Source{"x", 1}, now+evictAfter)
	assert.True(t, ok)
	assert.Equal(t, 1, e, "the oldest one of host a, which has the most")
}

func TestHalfOpen_WorkerMakesRoomForItself(t *testing.T) {
	var h HalfOpen[int]
	h.Add(1, Source{"a", 7}, 0)
	fill(&h, Source{"a", 1}, 100, 0)
	e, ok := h.Victim(Source{"a", 1}, evictAfter)
	assert.True(t, ok)
	assert.Equal(t, 100, e)
}

// BenchmarkHalfOpen_ManyHosts: the set is full of connections of many hosts, and those of the host with the most are too
// young to be evicted.
func BenchmarkHalfOpen_ManyHosts(b *testing.B) {
	var h HalfOpen[int]
	for i := range MaxHalfOpen - 2 {
		h.Add(i, Source{strconv.Itoa(i), uint64(i)}, 0)
	}
	for i := range 2 {
		h.Add(MaxHalfOpen+i, Source{"young", uint64(i)}, time.Hour)
	}
	for b.Loop() {
		if _, ok := h.Victim(Source{"new", 1}, time.Hour); ok {
			b.Fatal("evicted")
		}
	}
}
