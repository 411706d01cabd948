package conn

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func anySource(Source) bool { return true }

func TestLate_InOrderWhileFresh(t *testing.T) {
	var l Late
	require.Nil(t, l.Next(0, anySource))
	for i := range byte(3) {
		l.Add(Source{}, time.Duration(i)*lateFor/2, []byte{i})
	}
	assert.Equal(t, []byte{1}, l.Next(lateFor, anySource), "the first is too old")
	assert.Equal(t, []byte{2}, l.Next(lateFor, anySource))
	assert.True(t, l.Empty())
	assert.Zero(t, l.bytes)
	l.Add(Source{}, 0, []byte{9})
	assert.Nil(t, l.Next(lateFor, anySource))
	assert.True(t, l.Empty())
}

func TestLate_SourcesTakeTurns(t *testing.T) {
	var l Late
	for i := range byte(3) {
		l.Add(Source{"a", 1}, 0, []byte{i})
	}
	l.Add(Source{"b", 1}, 0, []byte{10})
	l.Add(Source{"a", 2}, 0, []byte{20})
	var got []byte
	for m := l.Next(0, anySource); m != nil; m = l.Next(0, anySource) {
		got = append(got, m...)
	}
	assert.Equal(t, []byte{0, 10, 20, 1, 2}, got)

	l.Add(Source{"a", 1}, 0, []byte{1})
	l.Add(Source{"b", 1}, 0, []byte{2})
	notA := func(s Source) bool { return s.Host != "a" }
	assert.Equal(t, []byte{2}, l.Next(0, notA), "a source without room does not delay others")
	assert.Nil(t, l.Next(0, notA))
	assert.Equal(t, []byte{1}, l.Next(0, anySource))
}

// TestLate_ExactLimits: the maximum number of bytes of one host and of all can wait. A host without messages does not
// count.
func TestLate_ExactLimits(t *testing.T) {
	var l Late
	half := make([]byte, maxLateHost/2)
	for range 3 {
		l.Add(Source{"a", 1}, 0, half)
	}
	assert.Equal(t, maxLateHost, l.bytes)
	l.Add(Source{"b", 1}, 0, half)
	l.Add(Source{"c", 1}, 0, half)
	assert.Equal(t, maxLate, l.bytes)
	l.Add(Source{"d", 1}, 0, half[:1])
	assert.Equal(t, maxLate, l.bytes)
	onlyB := func(s Source) bool { return s.Host == "b" }
	assert.Len(t, l.Next(0, onlyB), len(half))
	assert.Nil(t, l.Next(0, onlyB))
	assert.Equal(t, map[string]int{"a": maxLateHost, "c": maxLateHost / 2}, l.hosts)
	assert.Len(t, l.of, 2)
	assert.Equal(t, maxLate-len(half), l.bytes)
	l.Add(Source{"d", 1}, 0, half)
	assert.Equal(t, maxLate, l.bytes)
}

func TestLate_IsBounded(t *testing.T) {
	var l Late
	msg := make([]byte, 1000)
	for range 2 * maxLate / len(msg) {
		l.Add(Source{"a", 1}, 0, msg)
	}
	assert.Equal(t, maxLateHost/len(msg)*len(msg), l.bytes, "of one host")
	for i := range 2 * maxLate / len(msg) {
		l.Add(Source{string(rune('b' + i%8)), 1}, 0, msg)
	}
	assert.Equal(t, maxLate/len(msg)*len(msg), l.bytes)
	for l.Next(0, anySource) != nil {
	}
	assert.Zero(t, l.bytes)
	assert.Empty(t, l.hosts)
	assert.Empty(t, l.of)
}
