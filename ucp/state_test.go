package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
)

// TestState_SenderWithoutCredit: the peer makes no progress, so the sender uses all credit and queues
// messages. Then the peer has the messages without receives.
func TestState_SenderWithoutCredit(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeSM())
	p.connect().warm()
	assert.Contains(t, p.a.w.State(), ": open")
	assert.NotContains(t, p.a.w.State(), "in progress")

	data, buf := pattern(1<<10, 1), make([]byte, 1<<10)
	require.NoError(t, p.finish(p.a.ep.TagSend(7, data, nil))) // connects the lane
	require.NoError(t, p.finish(p.b.w.TagRecv(buf, 7, ^uint64(0), nil, nil)))

	const messages = 80
	var sends []*Request
	for range messages {
		r, err := p.a.ep.TagSend(7, data, nil)
		require.NoError(t, err)
		if r != nil {
			sends = append(sends, r)
		}
	}
	flush, err := p.a.ep.Flush()
	require.NoError(t, err)
	text := p.a.w.State()
	for _, want := range []string{"fsm fake0:1 for rma|amo|am, active true", "credit granted by the peer: ", "waiting for a lane, credit or a fence: ",
		"flush 1", "tag send 1024 bytes, waits"} {
		assert.Contains(t, text, want)
	}
	p.until(func() bool { return p.b.w.tag.table.Unexpected() > 3 })
	text = p.b.w.State()
	assert.Contains(t, text, "unexpected tagged messages: ")
	assert.Contains(t, text, "the oldest: 0x7, 1024 bytes; 0x7, 1024 bytes; 0x7, 1024 bytes")
	assert.Contains(t, text, "held by messages")

	for range messages {
		require.NoError(t, p.finish(p.b.w.TagRecv(buf, 7, ^uint64(0), nil, nil)))
	}
	for _, r := range append(sends, flush) {
		require.NoError(t, p.finish(r, nil))
	}
	assert.NotContains(t, p.a.w.State(), "in progress")
	assert.NotContains(t, p.b.w.State(), "unexpected")
}

// TestState_TupleOrder: a tuple queue does not close while messages of the sender wait for credit. The state of the sender names
// the limit and its settings.
func TestState_TupleOrder(t *testing.T) {
	p := newPair(t, queues(), tupleq).connect()
	data, buf := pattern(1<<10, 1), make([]byte, 1<<10)
	p.openTuple(1)
	assert.NotContains(t, p.a.w.State(), "wait for credit")

	const messages = 1000 // each has a tag of its own, so none uses a queue
	var sends []*Request
	for tag := range uint64(messages) {
		r, err := p.a.ep.TagSend(100+tag, data, nil)
		require.NoError(t, err)
		if r != nil {
			sends = append(sends, r)
		}
	}
	last, err := p.b.w.TagRecv(buf, 1, 1<<40-1, nil, nil) // closes the queue
	require.NoError(t, err)
	p.idle()
	text := p.a.w.State()
	for _, want := range []string{"messages that wait for credit: ", "with GUCX_TAG_PROTO=tupleq a queue closes after the peer has received earlier messages",
		"GUCX_TAG_PROTO=auto removes this limit", "GUCX_EAGER_WINDOW"} {
		assert.Contains(t, text, want)
	}
	for tag := range uint64(messages) {
		require.NoError(t, p.finish(p.b.w.TagRecv(buf, 100+tag, exact, nil, nil)))
	}
	require.True(t, last.Cancel())
	last.Release()
	for _, r := range sends {
		require.NoError(t, p.finish(r, nil))
	}
	assert.NotContains(t, p.a.w.State(), "wait for credit")
}
