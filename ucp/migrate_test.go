package ucp_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// migration is a pair whose b listens and migrates dialers to a second worker of its context.
type migration struct {
	*ucppair.Pair
	first, second *watched
	w             *ucp.Worker // of second
	migrated      int         // dialers
	stopped       bool        // w makes no progress
}

// newMigration makes b's listener accept a dialer that sends "first" and migrate the others.
func newMigration(t *testing.T, network, address string, second ucp.ListenConfig) *migration {
	t.Helper()
	h := &migration{Pair: ucppair.New(t, tlsets.Real("sm+tcp", "sm", "tcp"), ucp.Config{})}
	h.first = listen(t, &h.B, network, address, ucp.ListenConfig{Private: []byte("first"), Accept: func(r *ucp.ConnRequest) bool {
		if string(r.Private) != "first" {
			assert.NoError(t, r.Migrate(h.second.Listener))
			h.migrated++
		}
		return string(r.Private) == "first"
	}})
	var err error
	h.w, err = h.B.Ctx.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, h.w.Close()) })
	second.Private = []byte("second")
	h.second = watch(t, &second)
	h.second.Listener, err = h.w.ListenWith(h.first.Listener, second)
	require.NoError(t, err)
	return h
}

// until is pair.until with progress of the second worker.
func (h *migration) until(ok func() bool) {
	h.T.Helper()
	h.Pair.Until(func() bool {
		if !h.stopped {
			h.w.Progress()
		}
		return ok()
	})
}

// dial dials with a, and calls step before each poll.
func (h *migration) dial(private string, step func()) (*ucp.Peer, error) {
	ctx, cancel := context.WithTimeout(h.T.Context(), testenv.Watchdog)
	defer cancel()
	within := func(ctx context.Context, done func() bool) error {
		h.until(func() bool {
			step()
			return done() || ctx.Err() != nil
		})
		if done() {
			return nil
		}
		return ctx.Err()
	}
	l := h.first.Listener
	return h.A.W.DialWith(ctx, l.Addr().Network(), l.Addr().String(), &ucp.DialConfig{Private: []byte(private)}, within)
}

// TestMigrate: each dialer connects to the worker that the first listener has chosen, sends to that worker, and
// causes callbacks of the listener of that worker.
func TestMigrate(t *testing.T) {
	for _, n := range networks {
		t.Run(n.name, func(t *testing.T) {
			accepts := 0
			h := newMigration(t, n.network, n.address(t), ucp.ListenConfig{Accept: func(r *ucp.ConnRequest) bool {
				accepts++
				assert.Equal(t, n.network, r.From.Network)
				return string(r.Private) != "unwanted"
			}})
			for i, to := range []string{"first", "second", "first", "second", "second"} {
				p, err := h.dial(to, func() {})
				require.NoError(t, err, i)
				require.Equal(t, to, string(p.Private))
				buf := make([]byte, 5)
				r, err := h.w.TagRecv(buf, uint64(i), ^uint64(0), nil, nil)
				if to == "first" {
					r, err = h.B.W.TagRecv(buf, uint64(i), ^uint64(0), nil, nil)
				}
				require.NoError(t, err)
				require.NoError(t, h.Finish(p.EP.TagSend(uint64(i), []byte("hello"), nil)))
				h.until(r.Done)
				r.Release()
				assert.Equal(t, "hello", string(buf))
			}
			_, err := h.dial("unwanted", func() {})
			require.ErrorIs(t, err, ucs.ErrRejected)
			assert.Equal(t, 4, accepts)
			assert.Equal(t, []string{"connected 0", "connected 1"}, h.first.events)
			assert.Equal(t, []string{"connected 0", "connected 1", "connected 2"}, h.second.events)

			require.NoError(t, h.first.Close())
			require.NoError(t, h.Finish(h.second.peers[0].EP.Flush()), "connected peers are not affected")
		})
	}
}

// TestMigrate_Errors: calls that return an error, after which the result of Accept counts.
func TestMigrate_Errors(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{})
	other := listen(t, &p.B, "unix", abstractName(), ucp.ListenConfig{})
	var l *watched
	var second *ucp.Listener
	var kept *ucp.ConnRequest
	accepts := 0
	l = listen(t, &p.B, "unix", abstractName(), ucp.ListenConfig{Accept: func(r *ucp.ConnRequest) bool {
		accepts++
		assert.ErrorIs(t, r.Migrate(nil), ucs.ErrInvalidParam)
		assert.ErrorIs(t, r.Migrate(l.Listener), ucs.ErrInvalidParam, "itself")
		assert.ErrorIs(t, r.Migrate(other.Listener), ucs.ErrInvalidParam, "another socket")
		assert.ErrorIs(t, r.Migrate(second), ucs.ErrClosed)
		kept = r
		return true
	}})
	w, err := p.B.Ctx.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	_, err = w.ListenWith(nil, ucp.ListenConfig{})
	require.ErrorIs(t, err, ucs.ErrInvalidParam)
	_, err = p.B.W.ListenWith(l.Listener, ucp.ListenConfig{})
	require.ErrorIs(t, err, ucs.ErrInvalidParam, "the worker itself")
	_, err = p.A.W.ListenWith(l.Listener, ucp.ListenConfig{})
	require.ErrorIs(t, err, ucs.ErrInvalidParam, "another context")
	_, err = w.ListenWith(l.Listener, ucp.ListenConfig{Private: make([]byte, ucp.MaxPrivate+1)})
	require.ErrorIs(t, err, ucs.ErrTooLong)

	second, err = w.ListenWith(l.Listener, ucp.ListenConfig{})
	require.NoError(t, err)
	assert.Equal(t, l.Addr(), second.Addr())
	require.NoError(t, second.Close())
	require.NoError(t, second.Close(), "second call")
	_, err = dialTo(p, l, ucp.DialConfig{})
	require.NoError(t, err)
	assert.Equal(t, 1, accepts)
	assert.ErrorIs(t, kept.Migrate(second), ucs.ErrInvalidParam, "Accept has returned")
	require.NoError(t, l.Close())
	_, err = w.ListenWith(l.Listener, ucp.ListenConfig{})
	require.ErrorIs(t, err, ucs.ErrClosed, "the other listener")
	require.NoError(t, w.Close())
	_, err = w.ListenWith(other.Listener, ucp.ListenConfig{})
	require.ErrorIs(t, err, ucs.ErrClosed, "the worker")
}

// TestMigrate_Closes: a dialer that waits for the second worker fails when a listener or the second worker closes, and
// the second worker makes no EP.
func TestMigrate_Closes(t *testing.T) {
	for name, end := range map[string]func(h *migration) error{
		"the first listener":  func(h *migration) error { return h.first.Close() },
		"the second listener": func(h *migration) error { return h.second.Close() },
		"the second worker":   func(h *migration) error { return h.w.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			h := newMigration(t, "unix", abstractName(), ucp.ListenConfig{Accept: func(*ucp.ConnRequest) bool {
				assert.Fail(t, "the dialer is gone")
				return false
			}})
			h.stopped = true
			ended := false
			_, err := h.dial("second", func() {
				if h.migrated == 1 && !ended {
					ended = true
					require.NoError(t, end(h))
				}
			})
			require.ErrorIs(t, err, ucs.ErrConnReset)
			if name == "the first listener" {
				h.w.Progress()
			}
			assert.Empty(t, h.second.events)
			assert.Zero(t, h.w.EPs().Len())
		})
	}
}

// TestMigrate_Goroutines: each worker has a goroutine of its own, and dialers connect at the same time.
func TestMigrate_Goroutines(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{})
	w, err := p.B.Ctx.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, w.Close()) })
	const dialers = 8
	var first, second *ucp.Listener
	accepts, connected := 0, 0
	first, err = p.B.W.Listen(t.Context(), "unix", abstractName(), ucp.ListenConfig{Accept: func(r *ucp.ConnRequest) bool {
		if accepts++; accepts%2 == 0 {
			assert.NoError(t, r.Migrate(second))
		}
		return true
	}})
	require.NoError(t, err)
	second, err = w.ListenWith(first, ucp.ListenConfig{OnPeer: func(*ucp.Peer) { connected++ }})
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for _, w := range []*ucp.Worker{p.B.W, w} {
		go func() { ended <- w.Serve(ctx) }()
	}
	shared := p.A.W.Share()
	errs := make(chan error, dialers)
	for range dialers {
		go func() {
			_, err := shared.Dial(ctx, "unix", first.Addr().String(), ucp.DialConfig{})
			errs <- err
		}()
	}
	for range dialers {
		require.NoError(t, <-errs)
	}
	cancel()
	require.Equal(t, context.Canceled, <-ended)
	require.Equal(t, context.Canceled, <-ended)
	assert.Equal(t, dialers/2, connected)
}
