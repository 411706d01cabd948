package tcp

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/preface"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// sharing is a listener that passes connections with the preface of an end to it.
type sharing struct {
	t testing.TB
	l *net.TCPListener
	e *end

	adopted int
}

func share(t testing.TB, e *end) *sharing {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return &sharing{t: t, l: l, e: e}
}

func (s *sharing) at() netip.AddrPort { return s.l.Addr().(*net.TCPAddr).AddrPort() }

// adopt accepts a connection, reads its preface and passes it to the end.
func (s *sharing) adopt() {
	conn, err := s.l.AcceptTCP()
	require.NoError(s.t, err)
	defer conn.Close()
	var b [preface.Len]byte
	_, err = io.ReadFull(conn, b[:])
	require.NoError(s.t, err)
	id, err := preface.Parse(b)
	require.NoError(s.t, err)
	require.Equal(s.t, s.e.it.ID(), id)
	f, err := conn.File()
	require.NoError(s.t, err)
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	require.NoError(s.t, err)
	require.NoError(s.t, unix.SetNonblock(fd, true))
	s.e.it.Adopt(fd, conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr())
	s.adopted++
}

// toShared makes an EP of a to the end through the listener.
func (s *sharing) toShared(a *end) *endpoint {
	addr := s.e.it.AddrAt(s.at(), true)
	require.NotNil(s.t, addr)
	ep, err := a.it.NewEP(uct.EPParams{DeviceAddr: s.e.it.DeviceAddr(nil), IfaceAddr: a.it.AddrReached(addr, s.at())})
	require.NoError(s.t, err)
	a.eps = append(a.eps, ep.(*endpoint))
	return ep.(*endpoint)
}

// TestSharePort_ConnectsToListener: the peer connects to the listener, not to the port of the
// iface.
func TestSharePort_ConnectsToListener(t *testing.T) {
	a, b := newEnd(t, Config{}), newEnd(t, Config{})
	s := share(t, b)
	ep := s.toShared(a)
	_ = ep.AMShort(msgID, 1, []byte("x")) // starts to connect
	until(t, func() bool { return ep.conn.attempt != nil && ep.conn.attempt.connected }, a)
	s.adopt()
	send(t, ep, 1, 64, a, b)
	flush(t, ep, a, b)
	assert.Equal(t, s.at(), ep.conn.path.remote)
	assert.Len(t, b.it.table, 1)
}

// TestSharePort_FallsBackToOwnPort: if the listener is closed, the peer connects to the port of the
// iface.
func TestSharePort_FallsBackToOwnPort(t *testing.T) {
	a, b := newEnd(t, Config{}), newEnd(t, Config{})
	s := share(t, b)
	ep := s.toShared(a)
	require.NoError(t, s.l.Close())
	send(t, ep, 1, 64, a, b)
	flush(t, ep, a, b)
	assert.Equal(t, b.it.addr.port4, ep.conn.path.remote.Port())
	assert.False(t, ep.conn.path.listener)
}

// TestSharePort_NoOwnPort: an iface without its own port is reachable only through the listener.
func TestSharePort_NoOwnPort(t *testing.T) {
	cable := newCable(t)
	at := netip.AddrPortFrom(netip.IPv4Unspecified(), 7)
	b := openSharing(t, cable.Near, Config{SharePort: config.Yes}, at)
	assert.Zero(t, b.it.addr.port4|b.it.addr.port6)
	assert.Empty(t, b.it.listeners)
	a, err := parseIfaceAddr(b.it.IfaceAddr(nil))
	require.NoError(t, err)
	assert.Equal(t, netip.AddrPortFrom(cable.NearAddr, 7), a.listener)
	d, err := parseDeviceAddr(b.it.DeviceAddr(nil))
	require.NoError(t, err)
	assert.Equal(t, cable.NearAddr, d.v4)
	assert.Equal(t, a.listener, a.at(&d))

	off := newEndOn(t, cable.Near, Config{SharePort: config.No})
	assert.Nil(t, off.it.Ext().Port)
	ok, why := off.it.Reachable(b.it.DeviceAddr(nil), b.it.IfaceAddr(nil))
	assert.False(t, ok)
	assert.Contains(t, why, "SHARE_PORT=y there")
}

// TestSharePort_RefusesGarbage: garbage after a preface is refused as at the port of the iface.
func TestSharePort_RefusesGarbage(t *testing.T) {
	for name, say := range map[string]string{"garbage": "GET / HTTP/1.1\r\n\r\n", "nothing": ""} {
		t.Run(name, func(t *testing.T) {
			b := newEnd(t, Config{})
			s := share(t, b)
			conn, err := net.Dial("tcp4", s.l.Addr().String())
			require.NoError(t, err)
			defer conn.Close()
			_, err = conn.Write(append(preface.Append(nil, b.it.ID()), say...))
			require.NoError(t, err)
			s.adopt()
			if say == "" {
				require.NoError(t, conn.(*net.TCPConn).CloseWrite())
			}
			until(t, func() bool { return b.it.limits.refused.Load() == 1 }, b)
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(testenv.Watchdog)))
			_, err = conn.Read(make([]byte, 1))
			assert.Error(t, err)
			assert.Empty(t, b.it.unproven.all)
		})
	}
}

// TestAdopt_ClosesSocketAfterClose: a connection that is passed to a closed iface is closed.
func TestAdopt_ClosesSocketAfterClose(t *testing.T) {
	b := newEnd(t, Config{})
	require.NoError(t, b.it.Close())
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fds[1])
	b.it.Adopt(fds[0], defaultV4)
	n, err := unix.Read(fds[1], make([]byte, 1))
	assert.NoError(t, err)
	assert.Zero(t, n)
}

// TestAddrAt: the address contains an address of the device at which peers reach the listener.
func TestAddrAt(t *testing.T) {
	v4, v6, further := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("10.0.0.2")
	both := device{v4: v4, v6: v6, all: []netip.Addr{v4, v6, further}}
	only6 := device{v6: v6, all: []netip.Addr{v6}}
	for _, tc := range []struct {
		dev      device
		at, want string
	}{
		{both, "10.0.0.1:7", "10.0.0.1:7"},
		{both, "[::ffff:10.0.0.2]:7", "10.0.0.2:7"},
		{both, "[2001:db8::1]:7", "[2001:db8::1]:7"},
		{both, "10.0.0.3:7", ""},
		{both, "0.0.0.0:7", "10.0.0.1:7"},
		{both, "[::]:7", "10.0.0.1:7"},
		{only6, "[::]:7", "[2001:db8::1]:7"},
		{only6, "0.0.0.0:7", ""},
		{both, "", ""},
	} {
		it := &iface{dev: tc.dev}
		it.addr.key[0] = 1
		var at netip.AddrPort
		if tc.at != "" {
			at = netip.MustParseAddrPort(tc.at)
		}
		b := it.AddrAt(at, true)
		if tc.want == "" {
			assert.Nil(t, b, tc.at)
			continue
		}
		a, err := parseIfaceAddr(b)
		require.NoError(t, err, tc.at)
		assert.Equal(t, tc.want, a.listener.String())
		nat := netip.MustParseAddrPort("[::ffff:192.0.2.1]:9")
		a, err = parseIfaceAddr(it.AddrReached(b, nat))
		require.NoError(t, err)
		assert.Equal(t, "192.0.2.1:9", a.listener.String())
		listed := it.AddrAt(at, false)
		assert.Equal(t, listed, it.AddrReached(listed, nat), "this side has not reached it")
	}
	it := new(iface)
	assert.Equal(t, []byte("x"), it.AddrReached([]byte("x"), netip.MustParseAddrPort("192.0.2.1:9")))
}

// TestPathToListener: a listener on loopback of another host has a path only if this side has
// dialed its address.
func TestPathToListener(t *testing.T) {
	lo := device{name: "lo", loopback: true, v4: defaultV4, all: []netip.Addr{defaultV4}}
	at := netip.AddrPortFrom(defaultV4, 7)
	elsewhere := &deviceAddr{loopback: true, host: hostID() + 1}
	_, err := lo.pathToListener(elsewhere, &ifaceAddr{listener: at})
	assert.ErrorIs(t, err, uct.ErrUnreachable)
	p, err := lo.pathToListener(elsewhere, &ifaceAddr{listener: at, reached: true})
	require.NoError(t, err)
	assert.Equal(t, path{local: defaultV4, remote: at, listener: true}, p)
	eth := device{name: "eth9"}
	_, err = eth.pathToListener(elsewhere, &ifaceAddr{listener: at, reached: true})
	assert.ErrorContains(t, err, "not on eth9")
	_, err = lo.pathToListener(elsewhere, &ifaceAddr{listener: netip.MustParseAddrPort("192.0.2.1:7"), reached: true})
	assert.ErrorIs(t, err, uct.ErrUnreachable)
}

// openSharing opens an end for a worker with a listener.
func openSharing(t testing.TB, device string, cfg Config, at netip.AddrPort) *end {
	t.Helper()
	md, err := New(Config{}).OpenMD(Name)
	require.NoError(t, err)
	e := &end{t: t, md: md.(*domain)}
	it, err := md.OpenIface(uct.IfaceParams{Transport: Name, Device: device, Config: cfg, Listener: at})
	require.NoError(t, err)
	e.it = it.(*iface)
	mem, err := e.md.Alloc(endMem, uct.AccessAll)
	require.NoError(t, err)
	e.mem = mem.(*memory)
	t.Cleanup(e.close)
	return e
}
