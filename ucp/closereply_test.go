package ucp_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// replyWaits makes a handler of b close the EP of an RTS while the iface is full: the reply that rejects the RTS waits
// for resources.
func replyWaits(t *testing.T) (p *ucppair.Pair, f *faketp.Fabric, sent, closing *ucp.Request) {
	p, f = ucppair.Fake(t, ucp.Config{}, faketp.LikeSM())
	p.Both().Warm()
	require.NoError(t, p.Finish(p.B.EP.Put([]byte{1}, p.B.Key.Addr(), p.B.Key, nil)))
	p.B.W.OnActive(1, func(m *ucp.ActiveMessage) {
		for range f.Kinds[0].Depth {
			assert.NoError(t, ucppair.Release(p.B.EP.Put(make([]byte, faketp.MaxBcopy), p.B.Key.Addr(), p.B.Key, nil)))
		}
		var err error
		closing, err = m.From.Close(ucp.CloseFlush)
		assert.NoError(t, err)
	})
	e, err := p.A.W.NewEP(p.B.W.Address(), ucp.EPConfig{})
	require.NoError(t, err)
	got := collect(t, p.B.W, 2)
	require.NoError(t, p.Finish(e.SendActive(2, nil, nil, nil)))
	p.Until(have(t, got, 1))
	idle(p) // the credit has been returned
	sent, err = e.SendActive(1, nil, make([]byte, 200_000), nil)
	require.NoError(t, err)
	p.Until(func() bool { return closing != nil })
	return p, f, sent, closing
}

// TestClose_WaitsForReply: an EP that is closed while a reply waits for resources of the lane is removed when the reply
// has been sent.
func TestClose_WaitsForReply(t *testing.T) {
	p, _, sent, closing := replyWaits(t)
	require.NoError(t, ucppair.Release(p.B.EP.Close(ucp.CloseForce))) // the lane has resources now, and the queue does not know yet
	require.NoError(t, p.Finish(closing, nil))
	if err := p.Finish(sent, nil); err != nil {
		assert.True(t, errors.Is(err, ucs.ErrPeerClosed), err)
	}
}

// TestClose_ReplyDroppedWithWorker: a reply that waits for resources is dropped when the worker closes.
func TestClose_ReplyDroppedWithWorker(t *testing.T) {
	p, f, sent, closing := replyWaits(t)
	f.IfaceOf(1, 0).Stuck = true
	for range 100 {
		p.Step()
	}
	require.False(t, closing.Done())
	require.NoError(t, p.B.W.Close())
	assert.NoError(t, ended(t, closing))
	assert.ErrorIs(t, p.Finish(sent, nil), ucs.ErrConnReset, "no DISCONNECT was sent")
}
