package ucp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/wireup"
)

// TestEP_ClosedInHandshake: an EP that is closed while its peer answers has no lanes, and gets none
// by the answer, also where that is seen before the peer is told, and the peer's own notice behind
// it.
func TestEP_ClosedInHandshake(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		if p.oneself() {
			t.Skip("one worker")
		}
		p.both()
		a, b := p.a.ep, p.b.ep
		r, err := a.TagSend(1, pattern(100, 1), nil)
		require.NoError(t, err)
		if r != nil {
			defer r.Release()
		}
		testenv.ProgressWithin(t, patience, func() bool {
			if p.a.w.Progress(); a.lane(wireup.AM) == nil {
				p.b.w.Progress()
			}
			return a.lane(wireup.AM) != nil
		})
		b.messaging()
		b.abortAndDisconnect()
		require.NoError(t, p.a.w.Close())
		for range 100 {
			p.b.w.pollOthers(nil)
		}
		p.b.w.Progress()
		require.NoError(t, p.b.w.Close())
	})
}
