package ucprpc

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	uatomic "go.uber.org/atomic"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// silent is a listener whose worker makes progress only in serve and until.
type silent struct {
	w     *ucp.Worker
	l     *ucp.Listener
	kinds [kindDrain + 1]int // messages received
	last  bool               // the message with number 99 was received
}

func newSilent(t *testing.T, c *ucp.Context, cfg ucp.ListenConfig) *silent {
	t.Helper()
	w, err := c.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, w.Close()) })
	s := &silent{w: w}
	w.OnActive(amID, func(m *ucp.ActiveMessage) {
		var h header
		_, ok := h.unpack(m.Header)
		assert.True(t, ok)
		s.kinds[h.kind]++
		s.last = s.last || h.number == 99
	})
	s.l, err = w.Listen(t.Context(), "unix", freshName(), cfg)
	require.NoError(t, err)
	return s
}

// serve makes progress while f runs.
func (s *silent) serve(t *testing.T, f func()) {
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.w.Serve(ctx)
	}()
	f()
	cancel()
	<-served
}

// canceledAtOnce is a context that ends after the first call of Err.
type canceledAtOnce struct {
	context.Context
	checks *uatomic.Int64
}

func newCanceledAtOnce(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return canceledAtOnce{ctx, uatomic.NewInt64(0)}
}

func (c canceledAtOnce) Err() error {
	if c.checks.Inc() == 1 {
		return nil
	}
	return context.Canceled
}

// TestCancel_NotSent: canceling a call that was not sent sends no message. Otherwise the queue of messages for a peer
// that grants no credit would grow.
func TestCancel_NotSent(t *testing.T) {
	s := newSilent(t, newContext(t, "sm"), ucp.ListenConfig{Private: []byte(hello)})
	var cl *Client
	s.serve(t, func() { cl = dial(t, newContext(t, "sm"), s.l.Addr().String(), ClientConfig{}) })
	l := cl.links[0].state.Load().p.l
	l.runOnLoop(func() { l.revokeLimit = 100 * hang })
	const calls = 1000
	var callers sync.WaitGroup
	var returned uatomic.Int64
	for range calls {
		callers.Go(func() { // some return only when the peer has made progress
			_, err := cl.Call(newCanceledAtOnce(t), methodEcho, nil, nil)
			assert.Equal(t, CodeCanceled, CodeOf(err))
			returned.Inc()
		})
	}
	eventually(t, func() bool {
		n := int(returned.Load())
		l.runOnLoop(func() {
			for _, s := range l.slots {
				if s.active && s.abandoned {
					n++
				}
			}
		})
		return n == calls
	})
	sent := make(chan error, 1)
	go func() { sent <- cl.Send(t.Context(), Method{Number: 99}, nil) }()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	require.NoError(t, s.w.Until(ctx, func() bool { return s.last }))
	s.serve(t, callers.Wait)
	require.NoError(t, <-sent)
	require.Positive(t, s.kinds[kindCall])
	require.Less(t, s.kinds[kindCall], calls)
	require.Equal(t, s.kinds[kindCall], s.kinds[kindCancel])
}

// TestDial_RejectedByOtherProtocol: the private data of a rejection by another protocol is not a redirection.
func TestDial_RejectedByOtherProtocol(t *testing.T) {
	c := newContext(t, "sm")
	other := listen(t, c, freshName(), testServer())
	s := newSilent(t, c, ucp.ListenConfig{Accept: func(r *ucp.ConnRequest) bool {
		_ = r.Answer([]byte(other.Addr().String()))
		return false
	}})
	s.serve(t, func() {
		_, err := Dial(t.Context(), c, "unix", s.l.Addr().String(), ClientConfig{})
		require.ErrorIs(t, err, ucs.ErrRejected)
	})
}
