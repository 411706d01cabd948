package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// TestClose_ForceAfterFlush: if operations do not complete, or a message is not received, the first Close waits. A
// second Close with CloseForce completes both calls, and fails the operations.
func TestClose_ForceAfterFlush(t *testing.T) {
	for _, tc := range []struct {
		name string
		op   func(p *ucppair.Pair) (*ucp.Request, error)
	}{
		{"get", func(p *ucppair.Pair) (*ucp.Request, error) {
			p.A.EP.Lane(wireup.RMA).EP.(*faketp.EP).Iface.Frozen = true
			return p.A.EP.Get(make([]byte, 9000), p.B.Mem.Addr(), p.A.Key, nil)
		}},
		{"put", func(p *ucppair.Pair) (*ucp.Request, error) { // completes, and its flush does not
			p.A.EP.Lane(wireup.RMA).EP.(*faketp.EP).Iface.Frozen = true
			return p.A.EP.Put(make([]byte, 100), p.B.Mem.Addr(), p.A.Key, nil)
		}},
		{"message", func(p *ucppair.Pair) (*ucp.Request, error) {
			return p.A.EP.TagSend(1, make([]byte, tlsets.MemLen), nil)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
			p.Connect().Warm()
			r, err := tc.op(p)
			require.NoError(t, err)
			first, err := p.A.EP.Close(ucp.CloseFlush)
			require.NoError(t, err)
			for range 100 {
				p.Step()
			}
			require.False(t, first.Done())
			_, err = p.A.EP.Close(ucp.CloseFlush)
			require.ErrorIs(t, err, ucs.ErrClosed)
			second, err := p.A.EP.Close(ucp.CloseForce)
			require.NoError(t, p.Finish(second, err))
			require.NoError(t, p.Finish(first, nil))
			if r != nil {
				require.ErrorIs(t, p.Finish(r, nil), ucs.ErrCanceled)
			}
			_, err = p.A.EP.Close(ucp.CloseForce)
			require.ErrorIs(t, err, ucs.ErrClosed)
			p.Until(func() bool { return p.A.W.EPs().Len() == 0 && p.B.W.EPs().Len() == 0 })
		})
	}
}
