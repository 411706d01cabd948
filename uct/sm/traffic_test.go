package sm

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs/stats"
	"github.com/gucx/gucx/uct"
)

// traffic returns the number of messages that an iface has sent and received.
func traffic(it *iface) (sent, received uint64) {
	it.UpdateStats()
	n := stats.New("sm")
	it.AddStats(n)
	all := maps.Collect(n.Snapshot().All())
	return all["sm.messages_sent"], all["sm.messages_received"]
}

// TestTraffic: both sides count the same messages, also when the link is closed.
func TestTraffic(t *testing.T) {
	w := openTwo(t, Config{FIFOSize: 4})
	const n = 100
	for range n {
		w.until(func() bool {
			err := w.ab.AMShort(1, 0, nil)
			require.True(t, err == nil || err == uct.ErrNoResource, "%v", err)
			return err == nil
		})
	}
	sent, received := traffic(w.a.iface)
	assert.EqualValues(t, n, sent)
	assert.Zero(t, received)
	w.until(func() bool { _, received = traffic(w.b.iface); return received == n })

	require.NoError(t, w.ab.Close())
	w.until(func() bool { return len(w.b.iface.in) == 0 })
	sent, _ = traffic(w.a.iface)
	assert.EqualValues(t, n, sent)
	sent, received = traffic(w.b.iface)
	assert.Zero(t, sent)
	assert.EqualValues(t, n, received)
}
