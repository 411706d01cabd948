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

// Group opens the tunnels of one owner. The owner sets the exported fields before the first tunnel
// and does not change them later.
type Group struct {
	Policy  *tlspolicy.Policy
	Tune    func(fd int) error // sets the options of a TCP socket: before it connects, or after it was accepted
	Silence time.Duration      // time without acknowledgement after which a host counts as dead
	Linger  time.Duration      // maximum time to send the last bytes after a close

	// Refusals is the maximum number of clients to which a refusal is sent at a time.
	Refusals int
	// Explain returns the reply to a client that began with these bytes instead of TLS; nothing if
	// the client would not understand it.
	Explain func(first [5]byte) []byte

	running  sync.WaitGroup // goroutines
	refusing atomic.Int32   // number of clients to which a refusal is being sent
}

// Wait waits until the goroutines of all tunnels have ended. The owner has called OwnerClosed for
// all of them.
func (g *Group) Wait() { g.running.Wait() }

// Dial connects from local to remote, sends first, and then completes the TLS handshake, within
// timeout. The caller owns fd. The tunnel sends what is written to fd after the handshake. When the
// handshake has succeeded, the byte Ready can be read from fd. If it fails, the tunnel closes its
// end of fd, and Cause returns the error.
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
		_, _ = sock.Write(first) // does not block; the handshake reports an error
		t.run(ctx, sock.(*net.TCPConn), tls.Client(sock, secret), true)
		_ = sock.Close()
	})
	return t, fd, nil
}

// control sets the options of a socket that package net dials.
func (g *Group) control(_, _ string, c syscall.RawConn) (err error) {
	ctl := c.Control(func(fd uintptr) { err = g.Tune(int(fd)) })
	return errors.Join(ctl, err)
}

// Accept expects a TLS handshake on an accepted socket within timeout, and takes ownership of the
// socket. What the client sends after the handshake can be read from fd, which the caller owns.
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

// remoteAddr returns the remote IP address of a connection.
func remoteAddr(conn *net.TCPConn) netip.Addr {
	return conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()
}

// retune sets the options that package net changes for a socket from a descriptor.
func (g *Group) retune(conn *net.TCPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	return g.control("", "", raw)
}

// refusalTime is the time that a refused client has to read the reason. Group.Wait may wait as long
// for a client that does not read.
const refusalTime = time.Second

// refuse sends the reason to a client whose handshake has failed, if the client can understand it.
// Unless there are too many of them, it then waits until the client has read it: closing a socket
// with unread bytes would reset the connection.
func (g *Group) refuse(conn *net.TCPConn, err error) {
	defer g.refusing.Add(-1)
	if g.refusing.Add(1) > int32(g.Refusals) {
		return
	}
	var first tls.RecordHeaderError
	if errors.As(err, &first) {
		_, _ = conn.Write(g.Explain(first.RecordHeader)) // does not block: it is the first write on the connection
	}
	_ = conn.CloseWrite()
	_ = conn.SetDeadline(time.Now().Add(refusalTime))
	_, _ = io.CopyN(io.Discard, conn, bufLen)
}

// connOf makes a net.Conn of a descriptor, of which it takes ownership.
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
