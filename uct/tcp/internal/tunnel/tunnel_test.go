package tunnel

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/tlspolicy"
	"github.com/gucx/gucx/ucs"
)

// newGroup makes a group with certificates of a. Explain replies "no" to clients that send "hello".
func newGroup(t *testing.T, a *testenv.Authority) *Group {
	t.Helper()
	p, err := (&tlspolicy.Config{TLS: a.Good(), Protocol: "test/1"}).Policy()
	require.NoError(t, err)
	g := &Group{Policy: p, Tune: func(int) error { return nil }, Linger: time.Minute, Silence: time.Hour, Refusals: 1}
	g.Explain = func(first [5]byte) []byte {
		if string(first[:]) == "hello" {
			return []byte("no")
		}
		return nil
	}
	t.Cleanup(g.Wait)
	return g
}

// listen returns a listening socket on loopback.
func listen(t *testing.T) (l *net.TCPListener, at netip.AddrPort) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l, l.Addr().(*net.TCPAddr).AddrPort()
}

// accept accepts one connection for g.
func accept(t *testing.T, g *Group, l *net.TCPListener) (*Tunnel, *net.UnixConn) {
	t.Helper()
	c, err := l.AcceptTCP()
	require.NoError(t, err)
	f, err := c.File()
	require.NoError(t, err)
	require.NoError(t, c.Close())
	sock, err := unix.Dup(int(f.Fd()))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	tun, fd, err := g.Accept(sock, time.Minute)
	require.NoError(t, err)
	return tun, owned(t, tun, fd)
}

// owned returns the end of the owner, which is closed at the end of the test.
func owned(t *testing.T, tun *Tunnel, fd int) *net.UnixConn {
	c, err := connOf[*net.UnixConn](fd)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close(); tun.OwnerClosed() })
	require.NoError(t, c.SetDeadline(time.Now().Add(testenv.Watchdog)))
	return c
}

// pair returns a connection between two groups.
func pair(t *testing.T, dials, accepts *Group) (a, b *Tunnel, fa, fb *net.UnixConn) {
	t.Helper()
	l, at := listen(t)
	a, fd, err := dials.Dial(netip.MustParseAddr("127.0.0.1"), at, nil, time.Minute)
	require.NoError(t, err)
	fa = owned(t, a, fd)
	b, fb = accept(t, accepts, l)
	return a, b, fa, fb
}

// TestTunnel_MovesBothDirections: the tunnel moves bytes in both directions, also after a
// half-close, and reports the close of the owner to the peer.
func TestTunnel_MovesBothDirections(t *testing.T) {
	a := testenv.NewAuthority(t)
	near, far, fa, fb := pair(t, newGroup(t, a), newGroup(t, a))
	sent := make([]byte, 3*bufLen+1)
	for i := range sent {
		sent[i] = byte(i * 7)
	}
	go func() {
		_, _ = fa.Write(sent)
		_ = fa.CloseWrite()
	}()
	got, err := io.ReadAll(fb)
	require.NoError(t, err)
	assert.Equal(t, sent, got)
	_, err = fb.Write([]byte("back"))
	require.NoError(t, err)
	require.NoError(t, fb.CloseWrite())
	got, err = io.ReadAll(fa)
	require.NoError(t, err)
	assert.Equal(t, "\x00back", string(got), "after Ready")
	require.NotNil(t, far.Peer())
	assert.Equal(t, near.Peer(), far.Peer(), "one certificate, one session")
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool { return near.Delivered() && far.Delivered() })
	assert.NoError(t, near.Cause(nil))
	assert.NoError(t, far.Cause(nil))
}

// TestTunnel_DeliversAfterOwnerClosed: bytes that were written before the owner closed its end
// arrive.
func TestTunnel_DeliversAfterOwnerClosed(t *testing.T) {
	a := testenv.NewAuthority(t)
	near, _, fa, fb := pair(t, newGroup(t, a), newGroup(t, a))
	go func() { _, _ = fb.Write([]byte("x")) }()
	_, err := io.ReadFull(fa, make([]byte, 2)) // Ready and the x, because unread bytes would cause a reset at Close
	require.NoError(t, err)
	_, err = fa.Write([]byte("last"))
	require.NoError(t, err)
	require.NoError(t, fa.Close())
	near.OwnerClosed()
	got, err := io.ReadAll(fb)
	require.NoError(t, err)
	assert.Equal(t, "last", string(got))
}

// TestGroup_ReportsRefusal: without a common authority both sides report the reason. A client
// without TLS gets a reply that it understands.
func TestGroup_ReportsRefusal(t *testing.T) {
	t.Run("authority", func(t *testing.T) {
		near, far, fa, fb := pair(t, newGroup(t, testenv.NewAuthority(t)), newGroup(t, testenv.NewAuthority(t)))
		for f, tun := range map[*net.UnixConn]*Tunnel{fa: near, fb: far} {
			_, err := io.ReadAll(f)
			require.NoError(t, err)
			assert.ErrorIs(t, tun.Cause(nil), ucs.ErrRejected)
		}
	})
	t.Run("plain", func(t *testing.T) {
		l, at := listen(t)
		c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(at))
		require.NoError(t, err)
		defer c.Close()
		_, err = c.Write([]byte("hello"))
		require.NoError(t, err)
		tun, f := accept(t, newGroup(t, testenv.NewAuthority(t)), l)
		got, err := io.ReadAll(c)
		require.NoError(t, err)
		assert.Equal(t, "no", string(got))
		_, err = io.ReadAll(f)
		require.NoError(t, err)
		assert.ErrorIs(t, tun.Cause(nil), ucs.ErrRejected)
	})
	t.Run("no listener", func(t *testing.T) {
		l, at := listen(t)
		require.NoError(t, l.Close())
		tun, fd, err := newGroup(t, testenv.NewAuthority(t)).Dial(at.Addr(), at, nil, time.Minute)
		require.NoError(t, err)
		_, err = io.ReadAll(owned(t, tun, fd))
		require.NoError(t, err)
		assert.ErrorIs(t, tun.Cause(nil), ucs.ErrUnreachable)
	})
}
