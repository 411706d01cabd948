package ucp

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/ucs"
)

// replyWaits makes a handler of b close the EP of an RTS while the iface is full: the reply that rejects the RTS waits
// for resources.
func replyWaits(t *testing.T) (p *pair, f *faketp.Fabric, sent, closing *Request) {
	p, f = fakePair(t, Config{}, faketp.LikeSM())
	p.both().warm()
	require.NoError(t, p.finish(p.b.ep.Put([]byte{1}, p.b.key.Addr(), p.b.key, nil)))
	p.b.w.OnActive(1, func(m *ActiveMessage) {
		for range f.Kinds[0].Depth {
			assert.NoError(t, releaseRequest(p.b.ep.Put(make([]byte, faketp.MaxBcopy), p.b.key.Addr(), p.b.key, nil)))
		}
		var err error
		closing, err = m.From.Close(CloseFlush)
		assert.NoError(t, err)
	})
	e, err := p.a.w.NewEP(p.b.w.Address(), EPConfig{})
	require.NoError(t, err)
	got := collect(t, p.b.w, 2)
	require.NoError(t, p.finish(e.SendActive(2, nil, nil, nil)))
	p.until(have(t, got, 1))
	p.idle() // the credit has been returned
	sent, err = e.SendActive(1, nil, make([]byte, 200_000), nil)
	require.NoError(t, err)
	p.until(func() bool { return closing != nil })
	return p, f, sent, closing
}

// TestClose_WaitsForReply: an EP that is closed while a reply waits for resources of the lane is removed when the reply
// has been sent.
func TestClose_WaitsForReply(t *testing.T) {
	p, _, sent, closing := replyWaits(t)
	require.NoError(t, releaseRequest(p.b.ep.Close(CloseForce))) // the lane has resources now, and the queue does not know yet
	require.NoError(t, p.finish(closing, nil))
	if err := p.finish(sent, nil); err != nil {
		assert.True(t, errors.Is(err, ucs.ErrPeerClosed), err)
	}
}

// TestClose_ReplyDroppedWithWorker: a reply that waits for resources is dropped when the worker closes.
func TestClose_ReplyDroppedWithWorker(t *testing.T) {
	p, f, sent, closing := replyWaits(t)
	f.IfaceOf(1, 0).Stuck = true
	for range 100 {
		p.step()
	}
	require.False(t, closing.Done())
	require.NoError(t, p.b.w.Close())
	assert.NoError(t, ended(t, closing))
	assert.ErrorIs(t, p.finish(sent, nil), ucs.ErrConnReset, "no DISCONNECT was sent")
}
