package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucs"
)

// TestProcesses_TargetClosesGracefully: a target closes its worker and its memory, and exits. Its peer gets a graceful
// close: the errors of operations in progress and of later ones say neither that it has died nor that it has rejected
// anything.
func TestProcesses_TargetClosesGracefully(t *testing.T) {
	for _, tls := range tlsets.ProcessSets() {
		t.Run(tls, func(t *testing.T) {
			t.Run("idle", func(t *testing.T) {
				x := startTarget(t, tls)
				in := x.reach(t, tls)
				exercise(in.ctx, t, in.ep, in.key, 1)
				require.NoError(t, x.in.Close())
				require.NoError(t, in.until(func() bool { return in.ep.Err() != nil }))
				in.left(t, in.ep.Err())
			})
			for name, do := range map[string]func(in *initiator, buf []byte) error{
				"puts": func(in *initiator, buf []byte) error {
					return in.ep.PutWait(in.ctx, buf, in.key.Addr(), in.key, nil)
				},
				"gets": func(in *initiator, buf []byte) error {
					return in.ep.GetWait(in.ctx, buf, in.key.Addr(), in.key, nil)
				},
				"flushed puts": func(in *initiator, buf []byte) error {
					if err := in.ep.PutWait(in.ctx, buf[:8], in.key.Addr(), in.key, nil); err != nil {
						return err
					}
					return in.ep.FlushWait(in.ctx)
				},
			} {
				t.Run(name, func(t *testing.T) {
					x := startTarget(t, tls)
					in := x.reach(t, tls)
					exercise(in.ctx, t, in.ep, in.key, 1)
					require.NoError(t, x.in.Close())
					var err error
					for buf := make([]byte, 40000); err == nil; {
						err = do(in, buf)
					}
					in.left(t, err)
					in.left(t, in.ep.Err())
				})
			}
		})
	}
}

// left checks the error of an EP whose peer has closed gracefully.
func (in *initiator) left(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, ucs.ErrPeerClosed)
	requireOneLine(t, err, "")
	require.ErrorIs(t, in.ep.Err(), ucs.ErrEPFailed)
	assert.NotErrorIs(t, err, ucs.ErrConnReset)
	in.refused(t)
}

// until makes progress until ok returns true.
func (in *initiator) until(ok func() bool) error { return in.w.Engine().Until(in.ctx, ok) }
