package ucplayer

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs/config"
)

// sendRaw sends a message of a kind from near, without its operation.
func sendRaw(near *Conn, k layer.Kind, message []byte) (*ucp.Request, error) {
	if k.Tagged() {
		return near.ep.TagSend(tag, message, nil)
	}
	return near.ep.SendActive(idData, nil, message, nil)
}

// receiver is the part of the target in an operation, and the peer that sends to it.
type receiver struct {
	layer.Part
	near *Conn
	far  *Conn
	spec layer.Spec
	good layer.Inbox // contents of messages
	sent uint64
}

// newReceiver returns the part for messages that are sent by rendezvous from thresh bytes.
func newReceiver(t *testing.T, thresh config.MemSize, s layer.Spec) *receiver {
	near, far := connPairOf(t, ucp.Config{RndvThresh: thresh}, layer.Config{Transport: "sm", Device: "memory", Context: t.Context()})
	part, err := far.Part(s)
	require.NoError(t, err)
	return &receiver{Part: part, near: near, far: far, spec: s, good: layer.NewInbox(s)}
}

// deliver sends the next message, changed by spoil, until it is received.
func (r *receiver) deliver(t *testing.T, spoil func([]byte) []byte) {
	message := make([]byte, r.spec.Size)
	r.good.Fill(message)
	layer.PutNumber(message, r.sent)
	req, err := sendRaw(r.near, r.spec.Kind, spoil(message))
	require.NoError(t, err)
	r.sent++
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		r.near.worker.Progress()
		_, err := r.Progress()
		require.NoError(t, err)
		n, _ := r.Finish()
		return n == r.sent && req.Done()
	})
	req.Release()
}

func intact(m []byte) []byte { return m }

// TestPart_ChecksEachMessage: whatever message is wrong, the first or one that a slot receives later, is reported.
func TestPart_ChecksEachMessage(t *testing.T) {
	last := func(m []byte) []byte { m[len(m)-1]++; return m }
	number := func(m []byte) []byte { m[0]++; return m }
	short := func(m []byte) []byte { return m[:len(m)-1] }
	for _, c := range []struct {
		name       string
		kind       layer.Kind
		thresh     config.MemSize
		unexpected bool
		spoil      func([]byte) []byte
	}{
		{"tag, number", layer.Tag, config.MemInf, false, number},
		{"tag, last byte", layer.Tag, config.MemInf, false, last},
		{"tag by rendezvous, last byte", layer.Tag, config.MemZero, false, last},
		{"unexpected tag, number", layer.Tag, config.MemInf, true, number},
		{"unexpected tag, last byte", layer.Tag, config.MemInf, true, last},
		{"am, number", layer.AM, config.MemInf, false, number},
		{"am, last byte", layer.AM, config.MemInf, false, last},
		{"am, length", layer.AM, config.MemInf, false, short},
		{"am by rendezvous, last byte", layer.AM, config.MemZero, false, last},
		{"am by rendezvous, length", layer.AM, config.MemZero, false, short},
	} {
		t.Run(c.name, func(t *testing.T) {
			const window = 3
			for _, wrong := range []uint64{0, 1, 2 * window} {
				r := newReceiver(t, c.thresh, layer.Spec{Kind: c.kind, Size: 100, Window: window, Seed: 7, Unexpected: c.unexpected})
				for range wrong {
					r.deliver(t, intact)
				}
				_, err := r.Finish()
				require.NoError(t, err)
				r.deliver(t, c.spoil)
				r.deliver(t, intact)
				_, err = r.Finish()
				assert.ErrorIs(t, err, layer.ErrData)
				assert.ErrorContains(t, err, fmt.Sprintf("message %d ", wrong))
			}
		})
	}
}

// TestPosted_CountsMessagesThatHaveArrived: a receive that finds its message when it is posted is an event: a side that
// sleeps while there are none must not sleep then.
func TestPosted_CountsMessagesThatHaveArrived(t *testing.T) {
	r := newReceiver(t, config.MemInf, layer.Spec{Kind: layer.Tag, Size: 8, Window: 1, Seed: 7, Unexpected: true})
	r.deliver(t, intact) // connects
	message := make([]byte, r.spec.Size)
	layer.PutNumber(message, r.sent)
	req, err := sendRaw(r.near, r.spec.Kind, message)
	require.NoError(t, err)
	defer req.Release()
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		_, _, arrived := r.far.worker.TagProbe(tag, ^uint64(0), false)
		return r.far.worker.Progress() == 0 && arrived
	})
	events, err := r.Progress()
	require.NoError(t, err)
	assert.Equal(t, 1, events)
}
