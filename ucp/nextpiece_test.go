package ucp

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/ucp/internal/window"
)

// TestNextPiece: a sender whose peer reads everything never waits forever, and fragments have their maximum length if
// the window is large enough for two.
func TestNextPiece(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.Int64Range(firstWindow, 4*firstWindow).Draw(rt, "window")
		limit := rapid.IntRange(100, 3*firstWindow).Draw(rt, "longest piece")
		a := messages{Window: window.Window{Credit: size, Most: rapid.Int64Range(firstWindow, size).Draw(rt, "most seen")}}
		due, other := int64(0), rapid.Int64Range(messageCharge, firstWindow/2)
		spend := func(n int64) { // the peer reads it at once, and returns half a window at a time
			a.Credit -= n
			if due += n; due >= size/2 {
				a.Credit, due = a.Credit+due, 0
			}
		}
		for rest := rapid.IntRange(1, 6*firstWindow).Draw(rt, "bytes"); rest > 0; {
			n := a.nextPiece(rest, limit)
			require.Positive(rt, n, "%d of credit", a.Credit)
			require.LessOrEqual(rt, charge(n), a.Credit)
			if a.Most >= 2*charge(limit) {
				require.Equal(rt, min(rest, limit), n)
			}
			rest -= n
			spend(charge(n))
			if c := other.Draw(rt, "another message"); c <= a.Credit && rapid.Bool().Draw(rt, "is sent") {
				spend(c)
			}
		}
	})
}
