package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
)

// TestState_SenderWithoutCredit: the peer makes no progress, so the sender uses all credit and queues
// messages. Then the peer has the messages without receives.
func TestState_SenderWithoutCredit(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeSM())
	p.Connect().Warm()
	assert.Contains(t, p.A.W.State(), ": open")
	assert.NotContains(t, p.A.W.State(), "in progress")

	data, buf := testenv.Pattern(1<<10, 1), make([]byte, 1<<10)
	require.NoError(t, p.Finish(p.A.EP.TagSend(7, data, nil))) // connects the lane
	require.NoError(t, p.Finish(p.B.W.TagRecv(buf, 7, ^uint64(0), nil, nil)))

	const messages = 80
	var sends []*ucp.Request
	for range messages {
		r, err := p.A.EP.TagSend(7, data, nil)
		require.NoError(t, err)
		if r != nil {
			sends = append(sends, r)
		}
	}
	flush, err := p.A.EP.Flush()
	require.NoError(t, err)
	text := p.A.W.State()
	for _, want := range []string{"fsm fake0:1 for rma|amo|am, active true", "credit granted by the peer: ", "waiting for a lane, credit or a fence: ",
		"flush 1", "tag send 1024 bytes, waits"} {
		assert.Contains(t, text, want)
	}
	p.Until(func() bool { return p.B.W.Tags().Unexpected() > 3 })
	text = p.B.W.State()
	assert.Contains(t, text, "unexpected tagged messages: ")
	assert.Contains(t, text, "the oldest: 0x7, 1024 bytes; 0x7, 1024 bytes; 0x7, 1024 bytes")
	assert.Contains(t, text, "held by messages")

	for range messages {
		require.NoError(t, p.Finish(p.B.W.TagRecv(buf, 7, ^uint64(0), nil, nil)))
	}
	for _, r := range append(sends, flush) {
		require.NoError(t, p.Finish(r, nil))
	}
	assert.NotContains(t, p.A.W.State(), "in progress")
	assert.NotContains(t, p.B.W.State(), "unexpected")
}
