package ucp

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
)

// acceptsLane returns a pair whose second end has accepted the lane that the first end proposed, and
// waits for its ACK. Time does not pass in the bubble of the test: a timeout would never fire.
func acceptsLane(t *testing.T) *pair {
	t.Helper()
	p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.connect()
	r, err := p.a.ep.Put([]byte{1}, p.b.mem.Addr(), p.a.key, nil)
	require.NoError(t, err)
	t.Cleanup(r.Release)
	p.a.spin()
	p.b.spin()
	require.False(t, p.b.peerEP(t).link.conn.Quiet())
	return p
}

// TestFailConnecting_LaneReset: the lane of an EP fails with ErrConnReset during the handshake. The peer, which is
// alive, gets the reason, and both EPs close without a timeout.
func TestFailConnecting_LaneReset(t *testing.T) {
	for _, st := range []ucs.Status{ucs.StatusConnReset, ucs.StatusTimedOut, ucs.StatusIOError} {
		t.Run(st.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := acceptsLane(t)
				e := p.b.peerEP(t)
				e.link.lanes.All[0].EP.(*faketp.EP).Fail(st)
				p.idle()
				assert.Zero(t, p.b.w.eps.Len(), "endpoints of the failed side")
				require.ErrorIs(t, p.a.ep.Err(), ucs.ErrEPFailed)
				assert.ErrorContains(t, p.a.ep.Err(), st.String())
				require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
				p.idle()
				assert.Zero(t, p.a.w.eps.Len())
			})
		})
	}
}

// TestFailConnecting_OwnReason: an EP fails during the handshake for a reason other than its transport.
func TestFailConnecting_OwnReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := acceptsLane(t)
		p.b.peerEP(t).fail(ucs.StatusInvalidParam, fmt.Errorf("test: %w", ucs.ErrInvalidParam), nil)
		p.idle()
		assert.Zero(t, p.b.w.eps.Len(), "endpoints of the failed side")
		require.ErrorIs(t, p.a.ep.Err(), ucs.ErrConnReset)
		assert.ErrorContains(t, p.a.ep.Err(), "failed at the peer, "+ucs.StatusInvalidParam.String())
		require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
	})
}

// TestFailConnecting_RealTransports: a QP of the software HCA fails after its side has accepted the lane and before the
// ACK of the peer. The handshake reports the reason to the peer, not only that the QP was closed.
func TestFailConnecting_RealTransports(t *testing.T) {
	for _, tls := range []string{`\rc`, "rc_mlx5", `\xrc`, "xrc_mlx5"} {
		set := tlsets.Real(tls, tls)
		t.Run(tls, func(t *testing.T) {
			reasonArrives(t, ucs.StatusConnReset, func(t *testing.T) error {
				return failsWhileConnecting(t, newPair(t, set, Config{WireupTimeout: config.Infinite}))
			})
		})
	}
}

// failsWhileConnecting fails the lane of the second end, which has accepted it, and returns the error of the first end.
func failsWhileConnecting(t *testing.T, p *pair) error {
	p.connect()
	sent, err := p.a.ep.TagSendSync(1, []byte{1}, nil)
	require.NoError(t, err)
	p.until(func() bool {
		p.b.w.Progress()
		if p.b.w.eps.Len() == 0 {
			p.a.w.Progress()
		}
		return p.b.w.eps.Len() == 1 && !p.b.peerEP(t).link.conn.Quiet()
	})
	x := p.b.peerEP(t).link.lanes.All[0].EP.(failing)
	x.Fail(ucs.StatusConnReset, ucs.ErrConnReset)
	require.ErrorIs(t, p.finish(sent, nil), ucs.ErrEPFailed)
	err = p.a.ep.Err()
	p.until(func() bool { return p.b.w.eps.Len() == 0 })
	require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
	return err
}

// reasonArrives checks that the error of an EP whose peer has failed names the reason of the peer in one of many attempts. A device
// delivers the report, a datagram, and finds the closed QP of the peer in any order, so that an EP may fail without the reason.
func reasonArrives(t *testing.T, reason ucs.Status, attempt func(*testing.T) error) {
	t.Helper()
	const attempts = 20
	var err error
	for range attempts {
		err = attempt(t)
		require.ErrorIs(t, err, ucs.ErrEPFailed)
		if strings.Contains(err.Error(), "failed at the peer, "+reason.String()) {
			return
		}
	}
	t.Fatalf("no reason in %d attempts: %v", attempts, err)
}
