package tcp

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs/stats"
	"github.com/gucx/gucx/uct"
)

// traffic returns the number of requests that an end has sent and received.
func (e *end) traffic() (sent, received uint64) {
	e.it.UpdateStats()
	n := stats.New("tcp")
	e.it.AddStats(n)
	all := maps.Collect(n.Snapshot().All())
	return all["tcp.requests_sent"], all["tcp.requests_received"]
}

// TestTraffic: both sides count the same requests, also when the connection is closed.
func TestTraffic(t *testing.T) {
	for name, cfg := range map[string]Config{"one connection": {}, "rails": threeRails} {
		t.Run(name, func(t *testing.T) {
			a, b := newEnd(t, cfg), newEnd(t, cfg)
			ep, key := a.to(b), a.keyOf(b)
			const n = 100
			for k := range uint64(n) {
				send(t, ep, k, 64, a, b)
			}
			c := newCounter(1)
			_, err := ep.PutZcopy([]uct.IOV{{Buf: a.mem.buf}}, b.mem.addr, key, &c.Completion)
			require.NoError(t, err)
			flush(t, ep, a, b)
			sent, received := a.traffic()
			assert.Greater(t, sent, uint64(n))
			assert.Zero(t, received)
			until(t, func() bool { _, received = b.traffic(); return received == sent }, a, b)

			b.close()
			until(t, func() bool { return len(a.errs) > 0 }, a)
			again, _ := a.traffic()
			assert.Equal(t, sent, again)
			_, again = b.traffic()
			assert.Equal(t, sent, again)
		})
	}
}
