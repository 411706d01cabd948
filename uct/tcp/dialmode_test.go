package tcp

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// toAs is to with a dial mode.
func (e *end) toAs(peer *end, mode uct.DialMode) *endpoint {
	e.t.Helper()
	ep, err := e.it.NewEP(uct.EPParams{DeviceAddr: peer.it.DeviceAddr(nil), IfaceAddr: peer.it.IfaceAddr(nil), Dial: mode})
	require.NoError(e.t, err)
	e.eps = append(e.eps, ep.(*endpoint))
	return ep.(*endpoint)
}

// atPort returns the address of e with the port of l.
func (e *end) atPort(l net.Listener) []byte {
	addr := e.it.addr
	addr.port4 = uint16(l.Addr().(*net.TCPAddr).Port)
	return addr.append(nil)
}

// thirdParty returns a listener of another service. Its backlog shows whether anything has
// connected.
func thirdParty(t *testing.T) net.Listener {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// assertUntouched checks that nothing has connected to l. On loopback the kernel completes a
// connection during connect, so it would be in the backlog.
func assertUntouched(t *testing.T, l net.Listener) {
	t.Helper()
	require.NoError(t, l.(*net.TCPListener).SetDeadline(time.Now().Add(time.Millisecond)))
	_, err := l.Accept()
	assert.ErrorContains(t, err, "timeout")
}

// TestDialByPeer_NeverConnects: an iface does not connect to an address that only the peer has
// claimed.
func TestDialByPeer_NeverConnects(t *testing.T) {
	l := thirdParty(t)
	a, b := newEnd(t, Config{ConnTimeout: 50 * time.Millisecond}), newEnd(t, Config{})
	params := uct.EPParams{DeviceAddr: b.it.DeviceAddr(nil), IfaceAddr: b.atPort(l), Dial: uct.DialedByPeer}
	_, err := a.it.NewEP(params)
	require.ErrorIs(t, err, uct.ErrUnreachable)
	assert.Empty(t, a.it.table)

	params.Dial = uct.DialByPeer
	ep, err := a.it.NewEP(params)
	require.NoError(t, err)
	a.eps = append(a.eps, ep.(*endpoint))
	requireNoResource(t, ep)
	until(t, func() bool { return len(a.errs) == 1 }, a)
	assert.ErrorIs(t, a.errs[0], ucs.ErrTimedOut)
	assert.ErrorContains(t, a.errs[0], "the peer has not connected")
	assertUntouched(t, l)
}

// requireNoResource checks that a post returns ErrNoResource, because the connection is not open.
func requireNoResource(t *testing.T, ep uct.EP) {
	t.Helper()
	require.Equal(t, uct.ErrNoResource, ep.(*endpoint).AMShort(msgID, 1, nil))
}

// TestDialNow_NoPostBeforeOpen: posts return ErrNoResource until the EP has connected, when it
// dispatches a pending request. If the EP cannot connect, the caller can purge the request, so no
// posted operation is lost.
func TestDialNow_NoPostBeforeOpen(t *testing.T) {
	a, b := newEnd(t, Config{}), newEnd(t, Config{})
	ep := a.toAs(b, uct.DialNow)
	requireNoResource(t, ep)
	sent := 0
	require.NoError(t, ep.AddPending(&uct.PendingReq{Func: func(*uct.PendingReq) error {
		if err := ep.AMShort(msgID, 1, nil); err != nil {
			return err
		}
		sent++
		return nil
	}}))
	until(t, func() bool { return len(b.got) == 1 }, a, b)
	assert.Equal(t, 1, sent)

	addr := newEnd(t, Config{}).it.addr
	addr.port4 = deadPort(t)
	dead, err := a.it.NewEP(uct.EPParams{DeviceAddr: b.it.DeviceAddr(nil), IfaceAddr: addr.append(nil), Dial: uct.DialNow})
	require.NoError(t, err)
	a.eps = append(a.eps, dead.(*endpoint))
	requireNoResource(t, dead)
	require.NoError(t, dead.AddPending(&uct.PendingReq{Func: func(*uct.PendingReq) error { return uct.ErrNoResource }}))
	until(t, func() bool { return len(a.errs) == 1 }, a)
	assert.ErrorIs(t, a.errs[0], uct.ErrUnreachable)
	purged := 0
	dead.PurgePending(func(*uct.PendingReq) { purged++ })
	assert.Equal(t, 1, purged)
}

// TestDialByPeer_UsesPeersConnection: the EP uses the connection that the peer opens, whichever
// side sends first.
func TestDialByPeer_UsesPeersConnection(t *testing.T) {
	a, b := newEnd(t, Config{}), newEnd(t, Config{})
	mine := b.toAs(a, uct.DialByPeer)
	requireNoResource(t, mine)
	a.toAs(b, uct.DialNow)
	until(t, func() bool { return mine.conn.state == connOpen }, a, b)
	send(t, mine, 1, 64, a, b)
	until(t, func() bool { return len(a.got) == 1 }, a, b)
	send(t, b.toAs(a, uct.DialedByPeer), 2, 64, a, b)
	until(t, func() bool { return len(a.got) == 2 }, a, b)
	assert.Empty(t, append(a.errs, b.errs...))
}

// TestDialByPeer_TrustedEPDials: a wrong port that the peer claims does not affect an EP with a
// trusted address. The connection of that EP also serves the other EPs.
func TestDialByPeer_TrustedEPDials(t *testing.T) {
	l := thirdParty(t)
	a, b := newEnd(t, Config{}), newEnd(t, Config{})
	ep, err := a.it.NewEP(uct.EPParams{DeviceAddr: b.it.DeviceAddr(nil), IfaceAddr: b.atPort(l), Dial: uct.DialByPeer})
	require.NoError(t, err)
	a.eps = append(a.eps, ep.(*endpoint))
	requireNoResource(t, ep)
	trusted := a.to(b)
	until(t, func() bool { return trusted.conn.state == connOpen }, a, b)
	send(t, ep.(*endpoint), 1, 64, a, b)
	send(t, trusted, 2, 64, a, b)
	flush(t, trusted, a, b)
	assert.Len(t, b.got, 2)
	assertUntouched(t, l)
	assert.Empty(t, append(a.errs, b.errs...))
}

// TestDialByPeer_PeerDialsRails: if one side does not dial, the other side dials the rails.
func TestDialByPeer_PeerDialsRails(t *testing.T) {
	l := thirdParty(t)
	a, b := newEnd(t, Config{ConnsPerPeer: 3}), newEnd(t, Config{ConnsPerPeer: 3})
	active := a.toAs(b, uct.DialNow)
	until(t, func() bool { return active.conn.state == connOpen }, a, b)
	ep, err := b.it.NewEP(uct.EPParams{DeviceAddr: a.it.DeviceAddr(nil), IfaceAddr: a.atPort(l), Dial: uct.DialByPeer})
	require.NoError(t, err)
	b.eps = append(b.eps, ep.(*endpoint))
	until(t, func() bool { return len(ep.(*endpoint).stripeConns()) == 3 }, a, b)
	assertUntouched(t, l)
	assert.Empty(t, append(a.errs, b.errs...))
}
