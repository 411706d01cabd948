package tcp

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// onSocket calls f with the descriptor of the TCP socket.
func (c *conn) onSocket(f func(fd int) error) (err error) {
	if c.tun == nil {
		return f(c.fd)
	}
	c.tun.Socket(func(sock *net.TCPConn) {
		var raw syscall.RawConn
		if raw, err = sock.SyscallConn(); err == nil {
			err = errors.Join(raw.Control(func(fd uintptr) { err = f(int(fd)) }), err)
		}
	})
	return err
}

// forConnections runs f with a connection, without and with TLS. Only a has the short timeouts of
// cfg. These tests run in parallel, because they wait for timers of the kernel.
func forConnections(t *testing.T, cfg Config, f func(t *testing.T, a, b *end, ep *endpoint)) {
	testenv.SkipShort(t, "timers of the kernel take as long in every build")
	t.Parallel()
	secret := cfg
	secret.TLS = testenv.NewAuthority(t).Good()
	for name, cfg := range map[string]Config{"plain": cfg, "TLS": secret} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := newEnd(t, cfg), newEnd(t, Config{TLS: cfg.TLS, RcvBuf: cfg.RcvBuf, Linger: time.Millisecond})
			ep := a.to(b)
			send(t, ep, 1, 64, a, b)
			flush(t, ep, a, b)
			f(t, a, b, ep)
		})
	}
}

// narrow has a small receive window.
var narrow = Config{UserTimeout: time.Second, SndBuf: 4 << 10, RcvBuf: 4 << 10, Linger: time.Millisecond}

// fillUntilProbed sends until the window of the peer, which does not read, is closed and the kernel
// has sent so many probes. It returns the number of messages. The kernel doubles the interval of
// the probes, which begins with 200 ms.
func fillUntilProbed(t *testing.T, a *end, ep *endpoint, probes uint8) (sent int) {
	until(t, func() bool {
		var info *unix.TCPInfo
		require.NoError(t, ep.conn.onSocket(func(fd int) (err error) {
			info, err = unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
			return err
		}))
		if ep.AMShort(msgID, 0, make([]byte, 4<<10)) == nil {
			sent++
		}
		return info.Backoff >= probes || len(a.errs) > 0
	}, a)
	require.Empty(t, a.errs)
	return sent
}

// TestUserTimeout_PeerMayReadNothing: a process that does not read for longer than USER_TIMEOUT
// does not count as dead, and no message is lost.
func TestUserTimeout_PeerMayReadNothing(t *testing.T) {
	forConnections(t, narrow, func(t *testing.T, a, b *end, ep *endpoint) {
		sent := 1 + fillUntilProbed(t, a, ep, 4)
		until(t, func() bool { return len(b.got) == sent }, a, b)
		flush(t, ep, a, b)
		until(t, func() bool { return len(a.it.unacked) == 0 && a.it.poll.TickInterval() == 0 }, a, b)
	})
}

// dropAll drops all packets for the socket of c, including acknowledgements.
func (c *conn) dropAll(t *testing.T) {
	nothing := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
	require.NoError(t, c.onSocket(func(fd int) error {
		return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing})
	}))
}

// TestUserTimeout_HostGoneWithClosedWindow: a host that stops replying to probes of a closed window
// is detected.
func TestUserTimeout_HostGoneWithClosedWindow(t *testing.T) {
	forConnections(t, narrow, func(t *testing.T, a, b *end, ep *endpoint) {
		fillUntilProbed(t, a, ep, 1)
		ep.conn.dropAll(t)
		b.it.table[a.it.addr.key].dropAll(t)
		until(t, func() bool { return len(a.errs) == 1 }, a)
		assert.ErrorIs(t, a.errs[0], ucs.ErrTimedOut)
	})
}

// TestUserTimeout_HostGone: a host that stops acknowledging is detected, with and without bytes in
// flight.
func TestUserTimeout_HostGone(t *testing.T) {
	short := Config{KeepIdle: time.Second, KeepInterval: time.Second, UserTimeout: time.Second, Linger: time.Millisecond}
	forConnections(t, short, func(t *testing.T, a, b *end, ep *endpoint) {
		idle := newEnd(t, a.it.cfg)
		other := idle.to(b)
		send(t, other, 1, 64, idle, b)
		flush(t, other, idle, b)
		for _, lost := range []*conn{ep.conn, other.conn, b.it.table[a.it.addr.key], b.it.table[idle.it.addr.key]} {
			lost.dropAll(t)
		}
		c := newCounter(1)
		require.NoError(t, ep.AMShort(msgID, 0, nil))
		_, err := ep.Flush(&c.Completion)
		require.NoError(t, err)
		until(t, func() bool { return len(a.errs) == 1 && len(idle.errs) == 1 }, a, idle)
		for _, e := range []*end{a, idle} {
			assert.ErrorIs(t, e.errs[0], ucs.ErrTimedOut)
			assert.ErrorIs(t, e.errs[0], uct.ErrEPFailed)
		}
		assert.Equal(t, 1, c.fired)
		assert.Equal(t, ucs.StatusTimedOut, c.Status)
	})
}
