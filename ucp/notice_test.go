package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// toldWhy is a pair over frc whose second end has failed the connection: why is in the queue of
// the first end's fud, which rests.
func toldWhy(t *testing.T) *pair {
	p, _ := fakePair(t, Config{}, likeRC(), likeUD())
	p.both().warm()
	p.idle()
	p.b.failEP(t)
	aux := p.a.w.ifaces[1].Iface.Iface.(*fakeIface)
	require.Equal(t, "fud", aux.kind.name)
	require.Empty(t, aux.rx)
	for len(aux.rx) == 0 {
		p.b.w.Progress()
	}
	return p
}

// failEP fails the connection as one does whose peer breaks a rule.
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

// wantWhy: the EP has failed since the peer says that it has.
func (x *end) wantWhy(t *testing.T, err error) {
	t.Helper()
	assert.ErrorIs(t, err, ucs.ErrConnReset)
	assert.ErrorContains(t, err, "failed at the peer, "+ucs.StatusRemoteInvalid.String())
}

// TestNotice_BeforeTheLaneIsBelieved: a transport says that the peer has closed the connection, and
// why the peer has done so is here but has not been looked at.
func TestNotice_BeforeTheLaneIsBelieved(t *testing.T) {
	p := toldWhy(t)
	var told error
	p.a.ep.onError = func(_ *EP, err error) { told = err }
	breakLane(p.a.ep, wireup.RMA, ucs.StatusPeerClosed)
	p.a.w.Progress()
	p.a.wantWhy(t, p.a.ep.Err())
	assert.Equal(t, p.a.ep.Err(), told)
	require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
}

// TestNotice_OperationsEndFirst: an operation has ended with the lane before the worker looks, and
// another one was refused. The EP takes no more, and the user is told when why is known.
func TestNotice_OperationsEndFirst(t *testing.T) {
	for _, refused := range []bool{false, true} {
		p := toldWhy(t)
		var told error
		p.a.ep.onError = func(_ *EP, err error) { told = err }
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
		assert.NoError(t, told)
		p.a.w.Progress()
		p.a.wantWhy(t, p.a.ep.Err())
		assert.Equal(t, p.a.ep.Err(), told)
		require.Error(t, p.finish(r, nil))
		require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
	}
}
