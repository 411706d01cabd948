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

// TestOpenWithin_CombinesConfigAndCaller: dialing takes at most the shorter of both timeouts;
// waiting for the peer takes at least the longer one.
func TestOpenWithin_CombinesConfigAndCaller(t *testing.T) {
	known := path{remote: netip.AddrPortFrom(defaultV4, 7)}
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
		c := &conn{it: &iface{cfg: Config{ConnTimeout: time.Second}}, path: tc.path, within: tc.within}
		assert.Equal(t, tc.want, c.openWithin(), "%s within %v", tc.name, tc.within)
	}
}

// TestDial_FailsAfterWithin: dialing a peer that does not accept fails after EPParams.Within, not
// after CONN_TIMEOUT.
func TestDial_FailsAfterWithin(t *testing.T) {
	a, b := newEnd(t, Config{ConnTimeout: time.Hour}), newEnd(t, Config{})
	ep, err := a.it.NewEP(uct.EPParams{DeviceAddr: b.it.DeviceAddr(nil), IfaceAddr: b.it.IfaceAddr(nil), Dial: uct.DialNow, Within: time.Millisecond})
	require.NoError(t, err)
	a.eps = append(a.eps, ep.(*endpoint))
	until(t, func() bool { return len(a.errs) == 1 }, a) // b makes no progress
	assert.ErrorIs(t, a.errs[0], ucs.ErrTimedOut)
}

// dialNow dials a peer at an address of e's device.
func (e *end) dialNow(addr ifaceAddr) *endpoint {
	e.t.Helper()
	ep, err := e.it.NewEP(uct.EPParams{DeviceAddr: e.it.DeviceAddr(nil), IfaceAddr: addr.append(nil), Dial: uct.DialNow})
	require.NoError(e.t, err)
	e.eps = append(e.eps, ep.(*endpoint))
	return ep.(*endpoint)
}

// dialSilent dials n peers that never answer.
func (e *end) dialSilent(n int) {
	e.t.Helper()
	silent, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(e.t, err)
	e.t.Cleanup(func() { _ = silent.Close() })
	for range n {
		id, err := keypair.New()
		require.NoError(e.t, err)
		e.dialNow(ifaceAddr{port4: uint16(silent.Addr().(*net.TCPAddr).Port), seg: e.it.addr.seg, key: id.Public})
	}
}

// othersDial simulates maxDialing dialing connections of other ifaces of the process until the test
// ends.
func othersDial(t testing.TB) {
	processDialing.Add(maxDialing)
	t.Cleanup(func() { processDialing.Add(-maxDialing) })
}

// TestDial_QueuedTimeoutStartsWhenDialed: the timeout of queued connections starts when they are
// dialed. The first connections never open, so their timeout passes before that.
func TestDial_QueuedTimeoutStartsWhenDialed(t *testing.T) {
	a, b := newEnd(t, Config{ConnTimeout: 100 * time.Millisecond}), newEnd(t, Config{})
	a.dialSilent(maxDialing)
	last := a.dialNow(b.it.addr)
	assert.Equal(t, []*conn{last.conn}, a.it.dialQueue)
	assert.True(t, last.conn.deadline.IsZero())
	a.it.cfg.ConnTimeout = time.Hour // for the last one
	until(t, func() bool { return len(a.errs) >= maxDialing }, a)
	for _, err := range a.errs {
		require.ErrorIs(t, err, ucs.ErrTimedOut)
	}
	until(t, func() bool { return last.conn.state == connOpen }, a, b)
	assert.Empty(t, a.it.dialQueue)
	send(t, last, 1, 64, a, b)
	flush(t, last, a, b)
}

// TestDial_SkipsQueuedIfPeerConnects: a queued connection is not dialed if the peer has connected.
func TestDial_SkipsQueuedIfPeerConnects(t *testing.T) {
	a, b := newEnd(t, Config{ConnTimeout: time.Hour}), newEnd(t, Config{})
	othersDial(t)
	a.dialSilent(minDialing)
	ep := a.to(b)
	_ = ep.AMShort(msgID, 1, []byte("x"))
	require.Equal(t, []*conn{ep.conn}, a.it.dialQueue)
	back := b.to(a)
	send(t, back, 1, 64, a, b)
	flush(t, back, a, b)
	assert.Equal(t, connOpen, ep.conn.state)
	flush(t, ep, a, b)
	assert.Zero(t, ep.conn.tries)
}

// TestDial_LimitsWholeProcess: while other ifaces of the process dial maxDialing connections, an
// iface dials only minDialing of its own. It dials the others when these are open.
func TestDial_LimitsWholeProcess(t *testing.T) {
	othersDial(t)
	before := processDialing.Load()
	a := newEnd(t, Config{})
	ends := []*end{a}
	for i := range 3 * minDialing {
		to := newEnd(t, Config{})
		ends = append(ends, to)
		_ = a.to(to).AMShort(msgID, 1, []byte("x"))
		assert.Len(t, a.it.dialQueue, max(0, i+1-minDialing))
	}
	until(t, func() bool { return len(a.it.dialQueue) == 0 && a.it.dialing == 0 }, ends...)
	for _, e := range a.eps {
		flush(t, e, ends...)
	}
	assert.Equal(t, before, processDialing.Load())
}

// TestDeadlines_ExcludeTimeWithoutProgress: time in which a worker does not call Progress does not
// count against the deadlines of its handshakes.
func TestDeadlines_ExcludeTimeWithoutProgress(t *testing.T) {
	a, b := newEnd(t, Config{ConnTimeout: time.Hour, HelloTimeout: time.Hour}), newEnd(t, Config{})
	c := a.to(b).conn
	c.dialWithRails()
	client, err := net.Dial("tcp4", netip.AddrPortFrom(a.it.dev.v4, a.it.addr.port4).String())
	require.NoError(t, err)
	defer client.Close()
	until(t, func() bool { return len(a.it.unproven.all) == 1 }, a)

	limits := [...]*time.Time{&c.deadline, &a.it.unproven.all[0].deadline}
	now := a.it.lastTick.Add(time.Minute)
	for _, limit := range limits {
		*limit = now
	}
	a.it.extendDeadlines(now)
	for _, limit := range limits {
		assert.Equal(t, time.Minute-maxTickDelay-deadlineTick, limit.Sub(now))
	}
	a.it.extendDeadlines(now.Add(maxTickDelay + deadlineTick))
	for _, limit := range limits {
		assert.Equal(t, time.Minute-maxTickDelay-deadlineTick, limit.Sub(now), "a tick that is not late")
	}
	for _, limit := range limits {
		*limit = now.Add(time.Hour - time.Second) // as of a handshake that has begun later
	}
	a.it.lastTick = now.Add(-time.Minute)
	a.it.extendDeadlines(now)
	for _, limit := range limits {
		assert.Equal(t, time.Hour, limit.Sub(now))
	}
	a.it.lastTick = time.Now().Add(-time.Hour)
	for _, limit := range limits {
		*limit = time.Now()
	}
	until(t, func() bool { return time.Since(a.it.lastTick) < time.Hour/2 }, a)
	assert.Empty(t, a.errs)
	assert.Len(t, a.it.unproven.all, 1)
}

// TestDial_CountsOnlyDialing: a connection that opens or fails, or whose iface is closed, is not
// counted as dialing.
func TestDial_CountsOnlyDialing(t *testing.T) {
	before := processDialing.Load()
	a, b := newEnd(t, Config{}), newEnd(t, Config{})
	a.dialSilent(3)
	require.Equal(t, before+3, processDialing.Load())
	opened := a.to(b)
	send(t, opened, 1, 64, a, b)
	flush(t, opened, a, b)
	assert.Equal(t, before+3, processDialing.Load(), "one has opened")
	for _, e := range a.eps[:3] {
		e.conn.fail(ucs.ErrTimedOut)
	}
	assert.Equal(t, before, processDialing.Load())
	a.dialSilent(3)
	require.NoError(t, a.it.Close())
	assert.Equal(t, before, processDialing.Load(), "closed")
}
