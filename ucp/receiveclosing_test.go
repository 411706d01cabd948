package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/wireup"
)

// TestEP_ClosedInHandshake: an EP closes while its peer replies. It has no lanes, and gets none by the reply, also if
// the reply arrives before the DISCONNECT is sent, and the DISCONNECT of the peer after it.
func TestEP_ClosedInHandshake(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		if p.Oneself() {
			t.Skip("one worker")
		}
		p.Both()
		a, b := p.A.EP, p.B.EP
		r, err := a.TagSend(1, testenv.Pattern(100, 1), nil)
		require.NoError(t, err)
		if r != nil {
			defer r.Release()
		}
		testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
			if p.A.W.Progress(); a.Lane(wireup.AM) == nil {
				p.B.W.Progress()
			}
			return a.Lane(wireup.AM) != nil
		})
		b.Messaging()
		b.AbortAndDisconnect()
		require.NoError(t, p.A.W.Close())
		for range 100 {
			pollOthers(p.B.W, nil)
		}
		p.B.W.Progress()
		require.NoError(t, p.B.W.Close())
	})
}
