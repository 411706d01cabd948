package tcp

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
)

// guest is a short-lived peer.
type guest struct {
	it *iface
	ep *endpoint
}

// visit opens a guest and exchanges messages between it and s over an EP in each direction.
func visit(t *testing.T, md *domain, s *end, cfg Config) (g guest, back *endpoint) {
	t.Helper()
	it, err := md.OpenIface(uct.IfaceParams{Transport: Name, Device: "lo", Config: cfg})
	require.NoError(t, err)
	g.it = it.(*iface)
	ep, err := g.it.NewEP(uct.EPParams{DeviceAddr: s.it.DeviceAddr(nil), IfaceAddr: s.it.IfaceAddr(nil)})
	require.NoError(t, err)
	g.ep = ep.(*endpoint)
	require.NoError(t, g.ep.AMShort(msgID, 1, nil))
	seen := len(s.got)
	self := &end{t: t, it: g.it}
	until(t, func() bool { return len(s.got) > seen }, s, self)
	there, err := s.it.NewEP(uct.EPParams{DeviceAddr: g.it.DeviceAddr(nil), IfaceAddr: g.it.IfaceAddr(nil)})
	require.NoError(t, err)
	back = there.(*endpoint)
	require.NoError(t, back.AMShort(msgID, 1, nil))
	flush(t, back, s, self)
	return g, back
}

// resources counts the resources of a process and an iface.
type resourceCounts struct {
	Files, Goroutines       int
	Conns, Opened, Watched  int
	Tags, Pending, Incoming int
}

func (e *end) resourceCounts(t *testing.T) resourceCounts {
	t.Helper()
	it := e.it
	return resourceCounts{
		Files: testenv.OpenFiles(t), Goroutines: runtime.NumGoroutine(),
		Conns: it.known.Len() + len(it.table), Opened: it.openCount, Watched: it.poll.Places(),
		Tags: it.tags.Places(), Pending: len(it.opening), Incoming: len(it.unproven.all),
	}
}

// TestChurn_LeaksNothing: after many peers have connected and disconnected, an iface uses the same
// resources as after a few.
func TestChurn_LeaksNothing(t *testing.T) {
	secret := trusting(testenv.NewAuthority(t))
	for _, tc := range []struct {
		name  string
		cfg   Config
		peers int
	}{{"plain", Config{}, testenv.Rounds(100, 1000)}, {"TLS", secret, testenv.Rounds(20, 200)}} {
		t.Run(tc.name, func(t *testing.T) { churn(t, tc.cfg, tc.peers) })
	}
}

func churn(t *testing.T, cfg Config, peers int) {
	const few = 10
	s := newEnd(t, cfg)
	md, err := New(Config{}).OpenMD(Name)
	require.NoError(t, err)
	var first resourceCounts
	var bytes uint64
	alone := runtime.NumGoroutine() // goroutines of TLS end a little later than their connection
	ended := func() bool { return runtime.NumGoroutine() <= alone }
	for i := range few + peers {
		if i == few {
			until(t, ended, s)
			first, bytes = s.resourceCounts(t), heap()
		}
		g, back := visit(t, md.(*domain), s, cfg)
		switch i % 4 {
		case 0: // the guest closes
		case 1: // the server closes its EP first
			require.NoError(t, back.Close())
		default: // the guest is killed
			require.NoError(t, killSockets(g.it, i%4 == 2))
		}
		require.NoError(t, g.it.Close())
		until(t, func() bool { return s.it.openCount == 0 && len(s.it.broken) == 0 }, s)
		require.NoError(t, back.Close())
		s.errs, s.failed, s.got = s.errs[:0], s.failed[:0], s.got[:0]
	}
	require.NoError(t, md.Close())
	until(t, func() bool {
		now := s.resourceCounts(t)
		return now.Files <= first.Files && now.Goroutines <= first.Goroutines
	}, s)
	now := s.resourceCounts(t)
	now.Files, now.Goroutines = first.Files, first.Goroutines // they may have become fewer
	assert.Equal(t, first, now)
	assert.Less(t, heap(), bytes+uint64(s.it.cfg.RxBuf), "less than a buffer more")
}
