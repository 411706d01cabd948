package tcp

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/keypair"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// TestOpenWithin: this side connects no longer than both the configuration and the caller say, and waits for the
// peer no less than either.
func TestOpenWithin(t *testing.T) {
	known := path{remote: netip.AddrPortFrom(usualV4, 7)}
	for _, tc := range []struct {
		name         string
		path         path
		within, want time.Duration
	}{
		{"connects", known, 0, time.Second}, {"connects", known, time.Minute, time.Second},
		{"connects", known, time.Millisecond, time.Millisecond},
		{"waits", path{}, 0, time.Second}, {"waits", path{}, time.Minute, time.Minute},
		{"waits", path{}, time.Millisecond, time.Second},
	} {
		c := &conn{it: &Iface{cfg: Config{ConnTimeout: time.Second}}, path: tc.path, within: tc.within}
		assert.Equal(t, tc.want, c.openWithin(), "%s within %v", tc.name, tc.within)
	}
}

// TestDial_Within: a peer that accepts no connection is given up after EPParams.Within, not after CONN_TIMEOUT.
func TestDial_Within(t *testing.T) {
	a, b := newEnd(t, Config{ConnTimeout: time.Hour}), newEnd(t, Config{})
	ep, err := a.it.NewEP(uct.EPParams{DeviceAddr: b.it.DeviceAddr(nil), IfaceAddr: b.it.IfaceAddr(nil), Dial: uct.DialNow, Within: time.Millisecond})
	require.NoError(t, err)
	a.eps = append(a.eps, ep.(*EP))
	until(t, func() bool { return len(a.errs) == 1 }, a) // b makes no progress
	assert.ErrorIs(t, a.errs[0], ucs.ErrTimedOut)
}

// TestDial_Queued: an iface that connects to more peers than it dials at a time begins the time limit of the
// others when it dials them. The first ones accept nothing, so the limit passes before that.
func TestDial_Queued(t *testing.T) {
	a, b := newEnd(t, Config{ConnTimeout: 100 * time.Millisecond}), newEnd(t, Config{})
	silent, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	to := func(addr ifaceAddr) *EP {
		ep, err := a.it.NewEP(uct.EPParams{DeviceAddr: b.it.DeviceAddr(nil), IfaceAddr: addr.append(nil), Dial: uct.DialNow})
		require.NoError(t, err)
		a.eps = append(a.eps, ep.(*EP))
		return ep.(*EP)
	}
	silentAddr := ifaceAddr{port4: uint16(silent.Addr().(*net.TCPAddr).Port), seg: a.it.addr.seg}
	for range maxDialing {
		id, err := keypair.New()
		require.NoError(t, err)
		silentAddr.key = id.Public
		to(silentAddr)
	}
	last := to(b.it.addr)
	assert.Equal(t, []*conn{last.conn}, a.it.queued)
	assert.True(t, last.conn.limit.IsZero())
	a.it.cfg.ConnTimeout = time.Hour // of the last one
	until(t, func() bool { return len(a.errs) >= maxDialing }, a)
	for _, err := range a.errs {
		require.ErrorIs(t, err, ucs.ErrTimedOut)
	}
	until(t, func() bool { return last.conn.state == connOpen }, a, b)
	assert.Empty(t, a.it.queued)
	send(t, last, 1, 64, a, b)
	flush(t, last, a, b)
}

// TestDial_QueuedPeerConnects: a connection that waits for its turn is not dialed if the peer has connected, and
// neither is one that has no EP any more.
func TestDial_QueuedPeerConnects(t *testing.T) {
	a, b := newEnd(t, Config{}), newEnd(t, Config{})
	a.it.dialing = maxDialing
	ep := a.to(b)
	_ = ep.AMShort(msgID, 1, []byte("x"))
	require.Equal(t, []*conn{ep.conn}, a.it.queued)
	back := b.to(a)
	send(t, back, 1, 64, a, b)
	flush(t, back, a, b)
	assert.Equal(t, connOpen, ep.conn.state)
	flush(t, ep, a, b)
	assert.Zero(t, ep.conn.tries)
}
