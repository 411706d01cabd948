package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// failedByPeer is a pair over frc whose second end has failed the connection. The reason is in the receive queue of fud at
// the first end, which is not polled.
func failedByPeer(t *testing.T) *pair {
	p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.both().warm()
	p.idle()
	p.b.failEP(t)
	aux := p.a.w.ifaces[1].Iface.Iface.(*faketp.Iface)
	require.Equal(t, "fud", aux.Kind.Name)
	require.Empty(t, aux.Received)
	for len(aux.Received) == 0 {
		p.b.w.Progress()
	}
	return p
}

// failEP fails the connection as for a peer that violates the protocol.
func (x *end) failEP(t *testing.T) {
	t.Helper()
	e := x.peerEP(t)
	for i := range e.link.lanes.All {
		if x := &e.link.lanes.All[i]; x.Active {
			e.fail(ucs.StatusRemoteInvalid, ucs.ErrRemoteInvalid, x.Iface)
			return
		}
	}
	t.Fatal("there is no lane")
}

// requirePeerReason checks that the EP has failed with the reason of the peer.
func (x *end) requirePeerReason(t *testing.T, err error) {
	t.Helper()
	assert.ErrorIs(t, err, ucs.ErrConnReset)
	assert.ErrorContains(t, err, "failed at the peer, "+ucs.StatusRemoteInvalid.String())
}

// TestNotice_LaneReportsFirst: a transport reports that the peer has closed the connection, while the reason has
// arrived and was not handled.
func TestNotice_LaneReportsFirst(t *testing.T) {
	p := failedByPeer(t)
	var reported error
	p.a.ep.onError = func(_ *EP, err error) { reported = err }
	breakLane(p.a.ep, wireup.RMA, ucs.StatusPeerClosed)
	p.a.w.Progress()
	p.a.requirePeerReason(t, p.a.ep.Err())
	assert.Equal(t, p.a.ep.Err(), reported)
	require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
}

// TestNotice_OperationsEndFirst: an operation fails with the lane before the worker polls, and another one is rejected.
// The EP accepts no more operations, and calls OnError when the reason is known.
func TestNotice_OperationsEndFirst(t *testing.T) {
	for _, refused := range []bool{false, true} {
		p := failedByPeer(t)
		var reported error
		p.a.ep.onError = func(_ *EP, err error) { reported = err }
		put := func() (*Request, error) { return p.a.ep.Put(pattern(5000, 1), p.a.key.Addr(), p.a.key, nil) }
		r, err := put()
		require.NoError(t, err)
		it := breakLane(p.a.ep, wireup.RMA, ucs.StatusPeerClosed)
		if refused {
			_, err := put()
			require.ErrorIs(t, err, ucs.ErrEPFailed)
		} else {
			it.Progress()
			require.True(t, r.Done())
			require.ErrorIs(t, p.a.ep.Err(), ucs.ErrEPFailed)
		}
		assert.NoError(t, reported)
		p.a.w.Progress()
		p.a.requirePeerReason(t, p.a.ep.Err())
		assert.Equal(t, p.a.ep.Err(), reported)
		require.Error(t, p.finish(r, nil))
		require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
	}
}
