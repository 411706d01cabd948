package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
)

// TestClose_ManyEPs: a worker whose peer makes no progress checks each of its EPs a few times while it closes, not in
// each poll.
func TestClose_ManyEPs(t *testing.T) {
	const eps = 200
	p, f := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	for range eps {
		ep, err := p.a.w.NewEP(p.b.w.Address(), EPConfig{})
		require.NoError(t, err)
		require.NoError(t, p.finish(ep.TagSend(1, []byte{1}, nil)))
	}
	p.until(func() bool {
		for e := range p.a.w.eps.All() {
			if !e.link.conn.Quiet() || !e.link.carrier.Idle() {
				return false
			}
		}
		return true
	})
	for _, i := range f.Ifaces {
		i.NoFlush = true // the operations of other EPs remain in flight
	}
	f.Flushes.Store(0)
	require.NoError(t, p.a.w.Close())
	assert.LessOrEqual(t, f.Flushes.Load(), int64(10*eps))
}
