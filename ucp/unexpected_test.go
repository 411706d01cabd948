package ucp

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/invariants"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
)

// TestTag_UnexpectedAreLimited: the unexpected messages of peers that have disconnected are limited, and receives match the
// latest ones.
func TestTag_UnexpectedAreLimited(t *testing.T) {
	const budget, size = 64 << 10, 4000
	for _, set := range []tlsets.Set{faketp.Set("like sm", faketp.LikeSM()), tlsets.Real("tcp", "tcp")} {
		t.Run(set.Name, func(t *testing.T) {
			p := newPair(t, set, Config{EagerBudget: budget})
			w := p.b.w
			const peers = 50
			for i := range peers {
				p.connect()
				kept := w.tag.table.Unexpected()
				require.NoError(t, p.finish(p.a.ep.TagSend(uint64(i), pattern(size, i), nil)))
				require.NoError(t, p.finish(p.a.ep.TagSend(exact, nil, nil)))
				require.NoError(t, p.finish(w.TagRecv(nil, exact, exact, nil, nil)))
				require.Equal(t, kept+1, w.tag.table.Unexpected())
				require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
				p.until(func() bool { return w.eps.Len() == 0 })
				require.LessOrEqual(t, w.messages.leftBytes, int64(budget))
			}
			const left = budget / (4096 + messageCharge + departedCharge)
			assert.Equal(t, left, w.tag.table.Unexpected())
			assert.EqualValues(t, peers-left, counters(w)["worker.dropped_messages"])
			buf := make([]byte, size)
			for i := peers - left; i < peers; i++ {
				require.NoError(t, p.finish(w.TagRecv(buf, uint64(i), exact, nil, nil)))
				requireBytes(t, pattern(size, i), buf)
			}
			assert.Zero(t, w.messages.leftBytes)
			assert.Nil(t, w.tag.leftFirst)
			assert.Nil(t, w.tag.leftLast)
		})
	}
}

// TestTag_UnexpectedCountMemory: the count of unexpected messages of disconnected peers is near the memory that they
// use, over each transport.
func TestTag_UnexpectedCountMemory(t *testing.T) {
	testenv.SkipRace(t, "the detector uses memory")
	if invariants.Enabled {
		t.Skip("records say who made them")
	}
	for _, tl := range []string{"sm", "tcp", "ud", "rc"} {
		t.Run(tl, func(t *testing.T) {
			p := newPair(t, tlsets.Real(tl, tl), Config{})
			w := p.b.w
			leave := func(n int) {
				for range n {
					p.connect()
					kept := w.tag.table.Unexpected()
					require.NoError(t, p.finish(p.a.ep.TagSend(1, pattern(100, 1), nil)))
					p.until(func() bool { return w.tag.table.Unexpected() > kept })
					require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
					p.until(func() bool { return w.eps.Len() == 0 && p.a.w.eps.Len() == 0 })
				}
			}
			leave(10) // memory that the next peer uses again
			counted, used := w.messages.leftBytes, heapInUse()
			const n = 40
			leave(n)
			counted, used = w.messages.leftBytes-counted, heapInUse()-used
			t.Logf("%d bytes a message, %d are counted", used/n, counted/n)
			assert.Less(t, used, 2*counted)
			assert.Less(t, counted, 4*used)
		})
	}
}

// heapInUse returns the number of reachable bytes of the heap.
func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestStream_UnreadIsDropped: unread stream data of disconnected peers is dropped, and does not count for the limit of
// messages.
func TestStream_UnreadIsDropped(t *testing.T) {
	const budget = 64 << 10
	p, _ := fakePair(t, Config{EagerBudget: budget}, faketp.LikeTCP())
	w := p.b.w
	p.connect()
	require.NoError(t, p.finish(p.a.ep.TagSend(1, pattern(1000, 1), nil)))
	p.until(func() bool { return w.tag.table.Unexpected() == 1 })
	require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
	p.until(func() bool { return w.eps.Len() == 0 })
	left := w.messages.leftBytes
	for range budget / 8000 {
		p.connect()
		require.NoError(t, p.finish(p.a.ep.StreamSend(pattern(8000, 2), nil)))
		p.until(func() bool { return w.StreamReady() != nil })
		lent := w.StreamReady().StreamData()
		require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
		p.until(func() bool { return w.eps.Len() == 0 })
		lent.Release()
		require.Equal(t, left, w.messages.leftBytes)
	}
	buf := make([]byte, 1000)
	require.NoError(t, p.finish(w.TagRecv(buf, 1, exact, nil, nil)))
	requireBytes(t, pattern(1000, 1), buf)
}
