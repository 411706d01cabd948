package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/tlspolicy"
	"github.com/gucx/gucx/ucs"
)

// Group opens the tunnels of one owner. The exported fields are set before the first
// tunnel and not changed.
type Group struct {
	Policy  *tlspolicy.Policy
	Tune    func(fd int) error // sets the options of a TCP socket: before it connects, after it was accepted
	Silence time.Duration      // after which a host that acknowledges nothing is gone
	Linger  time.Duration      // longest time for the last bytes

	// Refusals is how many refused clients are told why at a time.
	Refusals int
	// Explain returns what to tell a client that began with these bytes and not with
	// TLS; nothing if it would not understand.
	Explain func(first [5]byte) []byte

	running  sync.WaitGroup // goroutines
	refusing atomic.Int32   // clients that are being told why they were refused
}

// Wait returns when the goroutines of all tunnels have ended. All must have been
// left.
func (g *Group) Wait() { g.running.Wait() }

// Dial connects from local to remote, sends first, and then uses TLS, at the latest in timeout. What is
// written to fd, which the caller owns, follows the handshake. When that has succeeded, fd has the
// byte Ready; why it failed shows in Because when the tunnel closes its end of fd.
func (g *Group) Dial(local netip.Addr, remote netip.AddrPort, first []byte, timeout time.Duration) (t *Tunnel, fd int, err error) {
	t, ctx, fd, err := newTunnel(g.Linger, g.Silence)
	if err != nil {
		return nil, -1, err
	}
	secret := g.Policy.Client(remote.Addr())
	g.running.Go(func() {
		ctx, stop := context.WithTimeout(ctx, timeout)
		defer stop()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: local.AsSlice()}, KeepAlive: -1, Control: g.control}
		sock, err := d.DialContext(ctx, "tcp", remote.String())
		if err != nil {
			t.end(fmt.Errorf("%w: %w", causeOf(err, ucs.ErrUnreachable), err))
			return
		}
		_, _ = sock.Write(first) // does not block; an error shows in the handshake
		t.run(ctx, sock.(*net.TCPConn), tls.Client(sock, secret), true)
		_ = sock.Close()
	})
	return t, fd, nil
}

// control sets the options of a socket that net dials.
func (g *Group) control(_, _ string, c syscall.RawConn) (err error) {
	ctl := c.Control(func(fd uintptr) { err = g.Tune(int(fd)) })
	return errors.Join(ctl, err)
}

// Accept expects TLS on an accepted socket, which it consumes, with a handshake that
// ends in timeout. What the client sends then is read from fd, which the caller owns.
func (g *Group) Accept(sock int, timeout time.Duration) (t *Tunnel, fd int, err error) {
	conn, err := connOf[*net.TCPConn](sock)
	if err != nil {
		return nil, -1, err
	}
	t, ctx, fd, err := newTunnel(g.Linger, g.Silence)
	if err == nil {
		err = g.retune(conn)
	}
	if err != nil {
		if t != nil {
			err = errors.Join(err, unix.Close(fd), t.inner.Close())
		}
		return nil, -1, errors.Join(err, conn.Close())
	}
	secret := g.Policy.Server(remoteAddr(conn))
	g.running.Go(func() {
		ctx, stop := context.WithTimeout(ctx, timeout)
		defer stop()
		if err := t.run(ctx, conn, tls.Server(conn, secret), false); err != nil {
			g.refuse(conn, err)
		}
		_ = conn.Close()
	})
	return t, fd, nil
}

// remoteAddr is the IP address at the other end of a socket.
func remoteAddr(conn *net.TCPConn) netip.Addr {
	return conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()
}

// retune sets again what package net changes when it takes over a socket.
func (g *Group) retune(conn *net.TCPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	return g.control("", "", raw)
}

// refusalTime is how long a refused client has to read why: as long as a group that ends may
// have to wait for one that does not.
const refusalTime = time.Second

// refuse tells a client whose handshake has failed why, as far as it can
// understand. It is given time to read that unless there are many of them: closing
// a socket with unread bytes in it resets the connection.
func (g *Group) refuse(conn *net.TCPConn, err error) {
	defer g.refusing.Add(-1)
	if g.refusing.Add(1) > int32(g.Refusals) {
		return
	}
	var first tls.RecordHeaderError
	if errors.As(err, &first) {
		_, _ = conn.Write(g.Explain(first.RecordHeader)) // does not block: it is the first on the connection
	}
	_ = conn.CloseWrite()
	_ = conn.SetDeadline(time.Now().Add(refusalTime))
	_, _ = io.CopyN(io.Discard, conn, bufLen)
}

// connOf makes a net.Conn of a descriptor, which it consumes.
func connOf[C net.Conn](fd int) (c C, err error) {
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	any, err := net.FileConn(f)
	if err != nil {
		return c, err
	}
	c, ok := any.(C)
	if !ok {
		return c, errors.Join(fmt.Errorf("%w: socket of type %T", ucs.ErrInternal, any), any.Close())
	}
	return c, nil
}
