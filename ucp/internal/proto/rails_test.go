package proto

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/uct"
)

func railsOf(bandwidths ...uint64) (s Rails) {
	for _, b := range bandwidths {
		s.Add(b)
	}
	return s
}

func TestRails_Bounds(t *testing.T) {
	s := railsOf(3e9, 1e9)
	assert.Equal(t, [MaxRails]int{3 << 20, 4 << 20}, s.Bounds(4<<20))
	assert.Equal(t, []int{75, 25}, []int{s.Share(0), s.Share(1)})
	assert.Equal(t, [MaxRails]int{3 << 20, 4<<20 + 5}, s.Bounds(4<<20+5), "the last one has the rest")
	one := railsOf(7)
	assert.Equal(t, [MaxRails]int{100}, one.Bounds(100))
	assert.Equal(t, 0, one.From(1))
}

// TestRails_Parts: the parts of any length are complete and in order, none is shorter than a chunk, all but the last
// are aligned, and with one more lane a part would be too short.
func TestRails_Parts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var s Rails
		rate := rapid.Uint64Range(1<<20, 1<<54)
		bandwidth := rate.Draw(rt, "best")
		for range rapid.IntRange(1, MaxRails+1).Draw(rt, "lanes") {
			s.Add(bandwidth)
			bandwidth -= bandwidth / 8 * rapid.Uint64Range(0, 7).Draw(rt, "eighths less")
		}
		n := rapid.IntRange(1, 1<<40).Draw(rt, "n")
		chunk := rapid.IntRange(1, 1<<20).Draw(rt, "chunk")
		use := s.For(n, chunk)
		ends, from := use.Bounds(n), 0
		for i := range use.Len() {
			if part := ends[i] - from; use.Len() > 1 {
				assert.GreaterOrEqual(rt, part, chunk, "lane %d of %d", i, use.Len())
			}
			assert.True(rt, i == use.Len()-1 || ends[i]%railAlign == 0)
			from = ends[i]
		}
		assert.Equal(rt, n, from)
		if least := s.From(chunk); least > 0 {
			a, b := s.For(least, chunk), s.For(least-1, chunk)
			assert.Greater(rt, a.Len(), 1, "from %d", least)
			assert.Equal(rt, 1, b.Len(), "below %d", least)
			assert.Equal(rt, n >= least, use.Len() > 1)
		} else {
			assert.Equal(rt, 1, use.Len())
		}
	})
}

func TestRails_Shared(t *testing.T) {
	s := railsOf(2e9, 1e9)
	m := Move{Cost: uct.Cost{Send: 100, Bandwidth: 2e9, SharedBandwidth: 1e9}, Piece: 10}
	assert.Equal(t, Move{Cost: uct.Cost{Send: 100, Bandwidth: 3e9, SharedBandwidth: 1.5e9}, Piece: 10}, s.Shared(m))
}
