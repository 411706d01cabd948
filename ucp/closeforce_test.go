package ucp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// TestClose_ForceAfterFlush: if operations do not complete, or a message is not received, the first Close waits. A
// second Close with CloseForce completes both calls, and fails the operations.
func TestClose_ForceAfterFlush(t *testing.T) {
	for _, tc := range []struct {
		name string
		op   func(p *pair) (*Request, error)
	}{
		{"get", func(p *pair) (*Request, error) {
			p.a.ep.lane(wireup.RMA).EP.(*faketp.EP).Iface.Frozen = true
			return p.a.ep.Get(make([]byte, 9000), p.b.mem.Addr(), p.a.key, nil)
		}},
		{"put", func(p *pair) (*Request, error) { // completes, and its flush does not
			p.a.ep.lane(wireup.RMA).EP.(*faketp.EP).Iface.Frozen = true
			return p.a.ep.Put(make([]byte, 100), p.b.mem.Addr(), p.a.key, nil)
		}},
		{"message", func(p *pair) (*Request, error) { return p.a.ep.TagSend(1, make([]byte, memLen), nil) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
			p.connect().warm()
			r, err := tc.op(p)
			require.NoError(t, err)
			first, err := p.a.ep.Close(CloseFlush)
			require.NoError(t, err)
			for range 100 {
				p.step()
			}
			require.False(t, first.Done())
			_, err = p.a.ep.Close(CloseFlush)
			require.ErrorIs(t, err, ucs.ErrClosed)
			second, err := p.a.ep.Close(CloseForce)
			require.NoError(t, p.finish(second, err))
			require.NoError(t, p.finish(first, nil))
			if r != nil {
				require.ErrorIs(t, p.finish(r, nil), ucs.ErrCanceled)
			}
			_, err = p.a.ep.Close(CloseForce)
			require.ErrorIs(t, err, ucs.ErrClosed)
			p.until(func() bool { return p.a.w.eps.Len() == 0 && p.b.w.eps.Len() == 0 })
		})
	}
}
