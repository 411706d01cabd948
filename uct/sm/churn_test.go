package sm

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

// disconnectOrders are the orders in which a client and a server with an EP to it disconnect.
var disconnectOrders = []func(t testing.TB, s *station, e *endpoint, c *child){
	func(t testing.TB, s *station, e *endpoint, c *child) { // the client first, in order
		c.End(t)
		testenv.ProgressWithin(t, watchdog, func() bool { s.iface.Progress(); return e.state == epFailed })
		require.NoError(t, e.Close())
	},
	func(t testing.TB, s *station, e *endpoint, c *child) { // the client is killed
		c.Kill(t)
		testenv.ProgressWithin(t, watchdog, func() bool { s.iface.Progress(); return e.state == epFailed })
		require.NoError(t, e.Close())
	},
	func(t testing.TB, s *station, e *endpoint, c *child) { // the server first
		require.NoError(t, e.Close())
		c.End(t)
	},
	func(t testing.TB, s *station, e *endpoint, c *child) { // the server first, with its iface
		require.NoError(t, s.iface.Close())
		s.iface = openIface(t, s.md, Config{})
		c.End(t)
	},
}

// TestChurn_NothingGrows: after many peers have connected and disconnected, a process has no more descriptors, mappings,
// goroutines, links and control blocks than after the first few.
func TestChurn_NothingGrows(t *testing.T) {
	s := openStation(t, Config{})
	md := s.md.(*domain)
	idle := func() bool {
		s.iface.Progress()
		return linksOf(md) == 0 && len(s.iface.in) == 0 && len(s.iface.links) == 0
	}
	round := func() {
		for _, part := range disconnectOrders {
			c := start(t, roleEcho, s, "")
			part(t, s, s.connect(t, c.exchangedInfo), c)
			testenv.ProgressWithin(t, watchdog, idle)
		}
	}
	round()
	first := held(t)
	for range testenv.Rounds(5, 1000/len(disconnectOrders)) {
		round()
	}
	testenv.ProgressWithin(t, watchdog, func() bool { return held(t).atMost(first) }) // goroutines end
	assert.Equal(t, 1, controlsOf(md), "control blocks")
	assert.Zero(t, md.owner.Quarantined.Load())
	assert.Empty(t, md.owner.Inside())
	s.close(t)
}
