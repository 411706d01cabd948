package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
)

// TestClose_ManyEPs: a worker whose peer makes no progress checks each of its EPs a few times while it closes, not in
// each poll.
func TestClose_ManyEPs(t *testing.T) {
	const eps = 200
	p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	for range eps {
		ep, err := p.A.W.NewEP(p.B.W.Address(), ucp.EPConfig{})
		require.NoError(t, err)
		require.NoError(t, p.Finish(ep.TagSend(1, []byte{1}, nil)))
	}
	p.Until(func() bool {
		for e := range p.A.W.EPs().All() {
			if !e.Handshake().Quiet() || !e.Carrier().Idle() {
				return false
			}
		}
		return true
	})
	for _, i := range f.Ifaces {
		i.NoFlush = true // the operations of other EPs remain in flight
	}
	f.Flushes.Store(0)
	require.NoError(t, p.A.W.Close())
	assert.LessOrEqual(t, f.Flushes.Load(), int64(10*eps))
}
