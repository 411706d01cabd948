package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestClose_ManyEPs: a worker whose peer makes no progress checks each of its EPs a few times while it closes, not in
// each poll.
func TestClose_ManyEPs(t *testing.T) {
	const eps = 200
	p, f := fakePair(t, Config{}, likeRC(), likeUD())
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
	for _, i := range f.ifaces {
		i.noFlush = true // the operations of other EPs remain in flight
	}
	f.flushes.Store(0)
	require.NoError(t, p.a.w.Close())
	assert.LessOrEqual(t, f.flushes.Load(), int64(10*eps))
}
