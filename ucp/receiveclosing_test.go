package ucp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/wireup"
)

// TestEP_ClosedInHandshake: an EP closes while its peer replies. It has no lanes, and gets none by the reply, also if
// the reply arrives before the DISCONNECT is sent, and the DISCONNECT of the peer after it.
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
