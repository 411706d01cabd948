package ucp_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
)

// acceptsLane returns a pair whose second end has accepted the lane that the first end proposed, and
// waits for its ACK. Time does not pass in the bubble of the test: a timeout would never fire.
func acceptsLane(t *testing.T) *ucppair.Pair {
	t.Helper()
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.Connect()
	r, err := p.A.EP.Put([]byte{1}, p.B.Mem.Addr(), p.A.Key, nil)
	require.NoError(t, err)
	t.Cleanup(r.Release)
	spin(&p.A)
	spin(&p.B)
	require.False(t, peerEP(t, &p.B).Handshake().Quiet())
	return p
}

// TestFailConnecting_LaneReset: the lane of an EP fails with ErrConnReset during the handshake. The peer, which is
// alive, gets the reason, and both EPs close without a timeout.
func TestFailConnecting_LaneReset(t *testing.T) {
	for _, st := range []ucs.Status{ucs.StatusConnReset, ucs.StatusTimedOut, ucs.StatusIOError} {
		t.Run(st.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := acceptsLane(t)
				e := peerEP(t, &p.B)
				e.Lanes().All[0].EP.(*faketp.EP).Fail(st)
				idle(p)
				assert.Zero(t, p.B.W.EPs().Len(), "endpoints of the failed side")
				require.ErrorIs(t, p.A.EP.Err(), ucs.ErrEPFailed)
				assert.ErrorContains(t, p.A.EP.Err(), st.String())
				require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
				idle(p)
				assert.Zero(t, p.A.W.EPs().Len())
			})
		})
	}
}

// TestFailConnecting_OwnReason: an EP fails during the handshake for a reason other than its transport.
func TestFailConnecting_OwnReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := acceptsLane(t)
		peerEP(t, &p.B).Fail(ucs.StatusInvalidParam, fmt.Errorf("test: %w", ucs.ErrInvalidParam), nil)
		idle(p)
		assert.Zero(t, p.B.W.EPs().Len(), "endpoints of the failed side")
		require.ErrorIs(t, p.A.EP.Err(), ucs.ErrConnReset)
		assert.ErrorContains(t, p.A.EP.Err(), "failed at the peer, "+ucs.StatusInvalidParam.String())
		require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
	})
}

// TestFailConnecting_RealTransports: a QP of the software HCA fails after its side has accepted the lane and before the
// ACK of the peer. The handshake reports the reason to the peer, not only that the QP was closed.
func TestFailConnecting_RealTransports(t *testing.T) {
	for _, tls := range []string{`\rc`, "rc_mlx5", `\xrc`, "xrc_mlx5"} {
		set := tlsets.Real(tls, tls)
		t.Run(tls, func(t *testing.T) {
			reasonArrives(t, ucs.StatusConnReset, func(t *testing.T) error {
				return failsWhileConnecting(t, ucppair.New(t, set, ucp.Config{WireupTimeout: config.Infinite}))
			})
		})
	}
}

// failsWhileConnecting fails the lane of the second end, which has accepted it, and returns the error of the first end.
func failsWhileConnecting(t *testing.T, p *ucppair.Pair) error {
	p.Connect()
	sent, err := p.A.EP.TagSendSync(1, []byte{1}, nil)
	require.NoError(t, err)
	p.Until(func() bool {
		p.B.W.Progress()
		if p.B.W.EPs().Len() == 0 {
			p.A.W.Progress()
		}
		return p.B.W.EPs().Len() == 1 && !peerEP(t, &p.B).Handshake().Quiet()
	})
	x := peerEP(t, &p.B).Lanes().All[0].EP.(failing)
	x.Fail(ucs.StatusConnReset, ucs.ErrConnReset)
	require.ErrorIs(t, p.Finish(sent, nil), ucs.ErrEPFailed)
	err = p.A.EP.Err()
	p.Until(func() bool { return p.B.W.EPs().Len() == 0 })
	require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
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
