package tuple

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestTurns compares the counts with those of a list, while the first entries are forgotten.
func TestTurns(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var s turns
		var first, last uint64
		has := map[SendPlace]bool{} // skipped and inserted
		rt.Repeat(map[string]func(*rapid.T){
			"add": func(rt *rapid.T) {
				for range rapid.IntRange(1, 40).Draw(rt, "count") {
					last += rapid.Uint64Range(1, 3).Draw(rt, "sent")
					at := SendPlace{rapid.Uint64Range(first+1, last).Draw(rt, "number"), rapid.Uint64Range(0, 4).Draw(rt, "through")}
					switch {
					case has[at]:
					case at.through == 0:
						s.skip(at.usual)
						has[at] = true
					default:
						s.insert(at)
						has[at] = true
					}
				}
			},
			"remove": func(rt *rapid.T) {
				for at := range has {
					if at.through != 0 {
						s.remove(at)
						delete(has, at)
						return
					}
				}
			},
			"forget": func(rt *rapid.T) {
				if s.full() {
					first = rapid.Uint64Range(first, last).Draw(rt, "first")
					s.forget(first)
				}
			},
			"": func(rt *rapid.T) {
				at := SendPlace{rapid.Uint64Range(first, last+1).Draw(rt, "up to"), rapid.Uint64Range(0, 5).Draw(rt, "through")}
				want := at.usual
				for p := range has {
					switch {
					case p.through == 0 && p.usual <= at.usual:
						want--
					case p.through != 0 && at.After(p):
						want++
					}
				}
				require.Equal(rt, want, s.count(at))
			},
		})
	})
}

// TestTurns_IsBounded: without messages that may be sent again, the lists do not grow.
func TestTurns_IsBounded(t *testing.T) {
	var s turns
	for n := range uint64(10_000) {
		if s.full() {
			s.forget(n)
		}
		s.skip(n + 1)
		require.LessOrEqual(t, len(s.skipped), minTurns)
	}
	require.Zero(t, s.count(SendPlace{usual: 10_000}))
}
