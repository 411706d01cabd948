package ucp

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucs/config"
)

// TestBlockingSend_NeedsNoLaterProgress: messages of a blocking call reach the peer even if the sender makes no progress
// afterwards: a second small message, and the last fragment of a large one.
func TestBlockingSend_NeedsNoLaterProgress(t *testing.T) {
	const fragmented = 100_000 // bytes; more than a fragment and less than a window
	for _, tc := range []struct {
		name string
		send func(ctx context.Context, x *end) func(b []byte) error
	}{
		{"worker", func(ctx context.Context, x *end) func([]byte) error {
			return func(b []byte) error { return x.ep.TagSendWait(ctx, 1, b, nil) }
		}},
		{"request", func(ctx context.Context, x *end) func([]byte) error {
			return func(b []byte) error {
				r, err := x.ep.TagSend(1, b, nil)
				if err != nil {
					return err
				}
				if err = r.Wait(ctx); err != nil {
					return err
				}
				return x.w.Until(ctx, func() bool { return true }) // r is nil if nothing is left to do
			}
		}},
		{"shared", func(ctx context.Context, x *end) func([]byte) error {
			s := x.w.Share()
			return func(b []byte) error {
				return s.Run(ctx, func() (*Request, error) { return x.ep.TagSend(1, b, nil) })
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPair(t, tlsets.Real("tcp", "tcp"), Config{RndvThresh: config.MemInf})
			p.both()
			buf := make([]byte, fragmented)
			for range 2 { // connects, and grants the full window
				r, err := p.b.w.TagRecv(buf, 1, ^uint64(0), nil, nil)
				require.NoError(t, err)
				require.NoError(t, p.finish(p.a.ep.TagSend(1, buf, nil)))
				require.NoError(t, p.finish(r, nil))
			}
			p.idle()
			ctx, cancel := context.WithTimeout(t.Context(), testenv.Watchdog)
			defer cancel()
			send := tc.send(ctx, &p.a)
			for _, n := range []int{8, 8, 8, fragmented} {
				require.NoError(t, send(buf[:n]))
			}
			for range 4 {
				_, err := p.b.w.TagRecvWait(ctx, buf, 1, ^uint64(0), nil)
				require.NoError(t, err)
			}
		})
	}
}

// TestSharedWorker_PushesLaterTransports: a transport that coalesces messages may be opened after the worker was
// shared.
func TestSharedWorker_PushesLaterTransports(t *testing.T) {
	p, f := fakePair(t, Config{}, faketp.LikeSM())
	s := p.a.w.Share()
	s.Do(func(*Worker) {})
	require.Zero(t, f.Pushes.Load())
	f.NeedsPush = true
	s.Do(func(w *Worker) { require.NoError(t, w.openLater(&w.ctx.offers[0])) })
	before := f.Pushes.Load()
	s.Do(func(*Worker) {})
	require.Equal(t, before+1, f.Pushes.Load())
}
