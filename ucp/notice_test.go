package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// failedByPeer is a pair over frc whose second end has failed the connection. The reason is in the receive queue of fud at
// the first end, which is not polled.
func failedByPeer(t *testing.T) *ucppair.Pair {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.Both().Warm()
	idle(p)
	failEP(t, &p.B)
	aux := p.A.W.Ifaces()[1].Iface.Iface.(*faketp.Iface)
	require.Equal(t, "fud", aux.Kind.Name)
	require.Empty(t, aux.Received)
	for len(aux.Received) == 0 {
		p.B.W.Progress()
	}
	return p
}

// failEP fails the connection as for a peer that violates the protocol.
func failEP(t *testing.T, x *ucppair.End) {
	t.Helper()
	e := peerEP(t, x)
	for i := range e.Lanes().All {
		if x := &e.Lanes().All[i]; x.Active {
			e.Fail(ucs.StatusRemoteInvalid, ucs.ErrRemoteInvalid, x.Iface)
			return
		}
	}
	t.Fatal("there is no lane")
}

// requirePeerReason checks that the EP has failed with the reason of the peer.
func requirePeerReason(t *testing.T, x *ucppair.End, err error) {
	t.Helper()
	assert.ErrorIs(t, err, ucs.ErrConnReset)
	assert.ErrorContains(t, err, "failed at the peer, "+ucs.StatusRemoteInvalid.String())
}

// TestNotice_LaneReportsFirst: a transport reports that the peer has closed the connection, while the reason has
// arrived and was not handled.
func TestNotice_LaneReportsFirst(t *testing.T) {
	p := failedByPeer(t)
	var reported error
	p.A.EP.SetOnError(func(_ *ucp.EP, err error) { reported = err })
	breakLane(p.A.EP, wireup.RMA, ucs.StatusPeerClosed)
	p.A.W.Progress()
	requirePeerReason(t, &p.A, p.A.EP.Err())
	assert.Equal(t, p.A.EP.Err(), reported)
	require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
}

// TestNotice_OperationsEndFirst: an operation fails with the lane before the worker polls, and another one is rejected.
// The EP accepts no more operations, and calls OnError when the reason is known.
func TestNotice_OperationsEndFirst(t *testing.T) {
	for _, refused := range []bool{false, true} {
		p := failedByPeer(t)
		var reported error
		p.A.EP.SetOnError(func(_ *ucp.EP, err error) { reported = err })
		put := func() (*ucp.Request, error) {
			return p.A.EP.Put(testenv.Pattern(5000, 1), p.A.Key.Addr(), p.A.Key, nil)
		}
		r, err := put()
		require.NoError(t, err)
		it := breakLane(p.A.EP, wireup.RMA, ucs.StatusPeerClosed)
		if refused {
			_, err := put()
			require.ErrorIs(t, err, ucs.ErrEPFailed)
		} else {
			it.Progress()
			require.True(t, r.Done())
			require.ErrorIs(t, p.A.EP.Err(), ucs.ErrEPFailed)
		}
		assert.NoError(t, reported)
		p.A.W.Progress()
		requirePeerReason(t, &p.A, p.A.EP.Err())
		assert.Equal(t, p.A.EP.Err(), reported)
		require.Error(t, p.Finish(r, nil))
		require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
	}
}
