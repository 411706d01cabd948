package ucp_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// TestWithin_BothSides: both sides of Dial have the time that ACCEPT contains.
func TestWithin_BothSides(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("tcp", "tcp"), ucp.Config{})
	l := listen(t, &p.B, "tcp", ":0", ucp.ListenConfig{HelloTimeout: 2 * time.Second})
	peer, err := dialTo(p, l, ucp.DialConfig{})
	require.NoError(t, err)
	const agreed = ucp.ConnectShare * 2 * time.Second
	assert.Equal(t, agreed, l.peers[0].EP.Within())
	assert.Equal(t, ucp.AttemptWithin(agreed, len(peer.EP.Peer().Aux)), peer.EP.Within())
	assert.GreaterOrEqual(t, l.peers[0].EP.Expires(), agreed+2*time.Second, "since the worker was made")

	p = ucppair.New(t, tlsets.Real("tcp", "tcp"), ucp.Config{WireupTimeout: 3 * time.Second})
	l = listen(t, &p.B, "tcp", ":0", ucp.ListenConfig{})
	_, err = dialTo(p, l, ucp.DialConfig{})
	require.NoError(t, err)
	assert.Equal(t, 3*time.Second, l.peers[0].EP.Within())
}

// TestDial_Late: a dialer that does not connect within the time of the ACCEPT, because the worker of the listener makes
// no progress, fails with an error that says so.
func TestDial_Late(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{}) // its connections need no progress of the peer
	l := listen(t, &p.B, "tcp", ":0", ucp.ListenConfig{HelloTimeout: time.Second / ucp.ConnectShare})
	accepts := func(ctx context.Context, done func() bool) error {
		testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
			p.A.W.Progress()
			if p.B.W.ExpectedPeers() == 0 {
				p.B.W.Progress()
			}
			return done() || ctx.Err() != nil
		})
		if done() {
			return nil
		}
		return ctx.Err()
	}
	_, err := p.A.W.DialWith(t.Context(), "tcp", l.Addr().String(), &ucp.DialConfig{}, accepts)
	require.ErrorIs(t, err, ucs.ErrTimedOut)
	require.ErrorIs(t, err, ucp.ErrLate)
	assert.ErrorContains(t, err, "of 1s")
	p.Until(func() bool { return p.A.W.EPs().Len()+p.B.W.EPs().Len() == 0 })
}
