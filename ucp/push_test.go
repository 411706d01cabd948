package ucp_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs/config"
)

// TestBlockingSend_NeedsNoLaterProgress: messages of a blocking call reach the peer even if the sender makes no progress
// afterwards: a second small message, and the last fragment of a large one.
func TestBlockingSend_NeedsNoLaterProgress(t *testing.T) {
	const fragmented = 100_000 // bytes; more than a fragment and less than a window
	for _, tc := range []struct {
		name string
		send func(ctx context.Context, x *ucppair.End) func(b []byte) error
	}{
		{"worker", func(ctx context.Context, x *ucppair.End) func([]byte) error {
			return func(b []byte) error { return x.EP.TagSendWait(ctx, 1, b, nil) }
		}},
		{"request", func(ctx context.Context, x *ucppair.End) func([]byte) error {
			return func(b []byte) error {
				r, err := x.EP.TagSend(1, b, nil)
				if err != nil {
					return err
				}
				if err = r.Wait(ctx); err != nil {
					return err
				}
				return x.W.Until(ctx, func() bool { return true }) // r is nil if nothing is left to do
			}
		}},
		{"shared", func(ctx context.Context, x *ucppair.End) func([]byte) error {
			s := x.W.Share()
			return func(b []byte) error {
				return s.Run(ctx, func() (*ucp.Request, error) { return x.EP.TagSend(1, b, nil) })
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := ucppair.New(t, tlsets.Real("tcp", "tcp"), ucp.Config{RndvThresh: config.MemInf})
			p.Both()
			buf := make([]byte, fragmented)
			for range 2 { // connects, and grants the full window
				r, err := p.B.W.TagRecv(buf, 1, ^uint64(0), nil, nil)
				require.NoError(t, err)
				require.NoError(t, p.Finish(p.A.EP.TagSend(1, buf, nil)))
				require.NoError(t, p.Finish(r, nil))
			}
			idle(p)
			ctx, cancel := context.WithTimeout(t.Context(), testenv.Watchdog)
			defer cancel()
			send := tc.send(ctx, &p.A)
			for _, n := range []int{8, 8, 8, fragmented} {
				require.NoError(t, send(buf[:n]))
			}
			for range 4 {
				_, err := p.B.W.TagRecvWait(ctx, buf, 1, ^uint64(0), nil)
				require.NoError(t, err)
			}
		})
	}
}

// TestSharedWorker_PushesLaterTransports: a transport that coalesces messages may be opened after the worker was
// shared.
func TestSharedWorker_PushesLaterTransports(t *testing.T) {
	p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeSM())
	s := p.A.W.Share()
	s.Do(func(*ucp.Worker) {})
	require.Zero(t, f.Pushes.Load())
	f.NeedsPush = true
	s.Do(func(w *ucp.Worker) { require.NoError(t, w.OpenFirst()) })
	before := f.Pushes.Load()
	s.Do(func(*ucp.Worker) {})
	require.Equal(t, before+1, f.Pushes.Load())
}
