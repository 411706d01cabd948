package tuple

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestSkipped compares the numbers with a set, while the first ones are forgotten.
func TestSkipped(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var s skipped
		var first, last uint64
		has := map[uint64]bool{}
		rt.Repeat(map[string]func(*rapid.T){
			"add": func(rt *rapid.T) {
				for range rapid.IntRange(1, 40).Draw(rt, "count") {
					last = max(last, first+1)
					n := rapid.Uint64Range(first+1, last).Draw(rt, "number")
					if !has[n] {
						has[n] = true
						s.add(n)
					}
					last++
				}
			},
			"forget": func(rt *rapid.T) {
				if s.full() {
					first = rapid.Uint64Range(first, last).Draw(rt, "first")
					s.forget(first)
				}
			},
			"": func(rt *rapid.T) {
				n := rapid.Uint64Range(first, last+1).Draw(rt, "up to")
				want := uint64(0)
				for k := range has {
					if k <= n {
						want++
					}
				}
				require.Equal(rt, want, s.upTo(n))
			},
		})
	})
}

// TestSkipped_IsBounded: without messages that may be sent again, the list does not grow.
func TestSkipped_IsBounded(t *testing.T) {
	var s skipped
	for n := range uint64(10_000) {
		if s.full() {
			s.forget(n)
		}
		s.add(n + 1)
		require.LessOrEqual(t, len(s.list), minSkipped)
	}
	require.EqualValues(t, 10_000, s.upTo(10_000))
}
