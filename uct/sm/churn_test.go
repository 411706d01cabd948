package sm

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

// waysToPart are how a client and a server that has an EP to it end their relation.
var waysToPart = []func(t testing.TB, s *station, e *EP, c *child){
	func(t testing.TB, s *station, e *EP, c *child) { // the client first, in order
		c.End(t)
		testenv.ProgressWithin(t, watchdog, func() bool { s.iface.Progress(); return e.state == epFailed })
		require.NoError(t, e.Close())
	},
	func(t testing.TB, s *station, e *EP, c *child) { // the client is killed
		c.Kill(t)
		testenv.ProgressWithin(t, watchdog, func() bool { s.iface.Progress(); return e.state == epFailed })
		require.NoError(t, e.Close())
	},
	func(t testing.TB, s *station, e *EP, c *child) { // the server first
		require.NoError(t, e.Close())
		c.End(t)
	},
	func(t testing.TB, s *station, e *EP, c *child) { // the server first, with its iface
		require.NoError(t, s.iface.Close())
		s.iface = openIface(t, s.md, Config{})
		c.End(t)
	},
}

// TestChurn_NothingGrows: a long-lived process has of peers that came and went what it had
// after the first few: no descriptor, mapping, goroutine, link or control block more.
func TestChurn_NothingGrows(t *testing.T) {
	s := openStation(t, Config{})
	md := s.md.(*MD)
	idle := func() bool {
		s.iface.Progress()
		return linksOf(md) == 0 && len(s.iface.in) == 0 && len(s.iface.links) == 0
	}
	round := func() {
		for _, part := range waysToPart {
			c := start(t, roleEcho, s, "")
			part(t, s, s.connect(t, c.meeting), c)
			testenv.ProgressWithin(t, watchdog, idle)
		}
	}
	round()
	first := held(t)
	for range testenv.Rounds(5, 1000/len(waysToPart)) {
		round()
	}
	testenv.ProgressWithin(t, watchdog, func() bool { return held(t).atMost(first) }) // goroutines end
	assert.Equal(t, 1, controlsOf(md), "control blocks")
	assert.Zero(t, md.owner.Quarantined.Load())
	assert.Empty(t, md.owner.Inside())
	s.close(t)
}
