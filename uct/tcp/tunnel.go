package tcp

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	uatomic "go.uber.org/atomic"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
)

// A tunnel carries a connection through TLS. The iface has one end of a pair of
// unix sockets where a plain connection has its TCP socket, and treats it the
// same; two goroutines move bytes between the other end and the TLS connection:
//
//	conn -- pair of sockets -- outbound -> crypto/tls -- TCP
//	                        <- inbound  --
//
// crypto/tls cannot continue a write that was cut short, so it needs calls that
// block. The pair bounds what is under way, and plain connections pay nothing.
type tunnel struct {
	inner  *net.UnixConn
	cancel context.CancelFunc
	linger time.Duration

	mu   sync.Mutex
	sock *net.TCPConn // nil until it is connected
	gone bool         // the iface has closed its end

	why     uatomic.Error // the first reason why the tunnel ended
	flushed atomic.Bool   // everything was handed to the kernel, and the end announced
}

// tunnels are those of an iface.
type tunnels struct {
	running sync.WaitGroup // goroutines
	parting atomic.Int32   // clients that are being told why they were refused
}

const tunnelBuf = 64 << 10

// newTunnel makes the pair; fd is the end of the iface.
func newTunnel(linger time.Duration) (t *tunnel, ctx context.Context, fd int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, -1, os.NewSyscallError("socketpair", err)
	}
	inner, err := connOf[*net.UnixConn](fds[1])
	if err != nil {
		return nil, nil, -1, errors.Join(err, unix.Close(fds[0]))
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &tunnel{inner: inner, cancel: cancel, linger: linger}, ctx, fds[0], nil
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

// dialTunnel connects along p through TLS. What is written to fd follows the
// handshake; why that failed shows when fd is closed by the tunnel.
func (it *Iface) dialTunnel(p path) (t *tunnel, fd int, err error) {
	t, ctx, fd, err := newTunnel(it.cfg.Linger)
	if err != nil {
		return nil, -1, err
	}
	cfg, secret := &it.cfg, it.secret.client(p.remote.Addr())
	it.tunnels.running.Go(func() {
		ctx, stop := context.WithTimeout(ctx, cfg.ConnTimeout)
		defer stop()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: p.local.AsSlice()}, KeepAlive: -1, Control: tuner(cfg)}
		sock, err := d.DialContext(ctx, "tcp", p.remote.String())
		if err != nil {
			t.end(fmt.Errorf("%w: %w", dialCause(err), err))
			return
		}
		t.run(ctx, sock.(*net.TCPConn), tls.Client(sock, secret))
		_ = sock.Close()
	})
	return t, fd, nil
}

// tuner sets the options of a socket that net dials.
func tuner(cfg *Config) func(_, _ string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) (err error) {
		ctl := c.Control(func(fd uintptr) {
			err = errors.Join(tune(int(fd), cfg), shareLocalPorts(int(fd)))
		})
		return errors.Join(ctl, err)
	}
}

// acceptTunnel expects TLS on an accepted socket, which it consumes.
func (it *Iface) acceptTunnel(sock int) (t *tunnel, fd int, err error) {
	conn, err := connOf[*net.TCPConn](sock)
	if err != nil {
		return nil, -1, err
	}
	t, ctx, fd, err := newTunnel(it.cfg.Linger)
	if err == nil {
		err = retune(conn, &it.cfg)
	}
	if err != nil {
		if t != nil {
			err = errors.Join(err, unix.Close(fd), t.inner.Close())
		}
		return nil, -1, errors.Join(err, conn.Close())
	}
	secret, timeout := it.secret.server(), it.cfg.HelloTimeout
	it.tunnels.running.Go(func() {
		ctx, stop := context.WithTimeout(ctx, timeout)
		defer stop()
		if err := t.run(ctx, conn, tls.Server(conn, secret)); err != nil {
			it.sendAway(conn, err)
		}
		_ = conn.Close()
	})
	return t, fd, nil
}

// sendAway tells a client whose handshake has failed why, as far as it can
// understand. It is given time to read that unless there are many of them: closing
// a socket with unread bytes in it resets the connection.
func (it *Iface) sendAway(conn *net.TCPConn, err error) {
	if n := it.tunnels.parting.Add(1); n > int32(it.cfg.Strangers) {
		it.tunnels.parting.Add(-1)
		return
	}
	defer it.tunnels.parting.Add(-1)
	_ = conn.SetDeadline(time.Now().Add(it.cfg.Linger))
	if speaksPlain(err) {
		var b [helloLen]byte
		(&hello{version: helloVersion, msg: msgAnswer, code: codeTLS, from: it.addr.id}).put(&b)
		_, _ = conn.Write(b[:])
	}
	_ = conn.CloseWrite()
	_, _ = io.CopyN(io.Discard, conn, tunnelBuf)
}

// speaksPlain reports whether a handshake failed because the client began with a
// plain HELLO.
func speaksPlain(err error) bool {
	var first tls.RecordHeaderError
	return errors.As(err, &first) && binary.LittleEndian.Uint32(first.RecordHeader[:]) == helloMagic
}

// retune sets again what package net changes when it takes over a socket.
func retune(conn *net.TCPConn, cfg *Config) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	ctl := raw.Control(func(fd uintptr) { err = tune(int(fd), cfg) })
	return errors.Join(ctl, err)
}

// run makes the handshake, whose error it returns, and then moves bytes until both
// directions have ended. ctx limits the handshake.
func (t *tunnel) run(ctx context.Context, sock *net.TCPConn, secure *tls.Conn) error {
	if !t.attach(sock) {
		t.end(net.ErrClosed)
		return nil
	}
	if err := secure.HandshakeContext(ctx); err != nil {
		t.end(tunnelError("TLS handshake", err))
		return err
	}
	var in sync.WaitGroup
	in.Go(func() { t.inbound(secure) })
	t.outbound(secure, sock)
	in.Wait()
	t.end(nil)
	return nil
}

// attach notes the socket; false if the iface has lost interest.
func (t *tunnel) attach(sock *net.TCPConn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sock = sock
	return !t.gone
}

// outbound moves what the iface writes, and then announces the end. What the
// peer still sends is read for the time of a graceful close.
func (t *tunnel) outbound(secure *tls.Conn, sock *net.TCPConn) {
	_, err := io.CopyBuffer(onlyWriter{secure}, onlyReader{t.inner}, make([]byte, tunnelBuf))
	if err == nil {
		err = secure.CloseWrite()
	}
	if err == nil {
		err = sock.CloseWrite()
	}
	if err != nil {
		t.end(tunnelError("send", err))
		_ = sock.SetReadDeadline(time.Now())
		return
	}
	t.flushed.Store(true)
	_ = sock.SetReadDeadline(time.Now().Add(t.linger))
}

// inbound moves what the peer sends.
func (t *tunnel) inbound(secure *tls.Conn) {
	_, err := io.CopyBuffer(onlyWriter{t.inner}, onlyReader{secure}, make([]byte, tunnelBuf))
	if err != nil {
		t.end(tunnelError("receive", err))
		return
	}
	_ = t.inner.CloseWrite()
}

// onlyReader and onlyWriter hide the shortcuts of sockets from io.CopyBuffer,
// which would not use the buffer.
type (
	onlyReader struct{ io.Reader }
	onlyWriter struct{ io.Writer }
)

// end notes why the tunnel ends, and tells the iface by closing its way in. Only
// the first reason counts.
func (t *tunnel) end(err error) {
	t.why.CompareAndSwap(nil, err)
	_ = t.inner.Close()
	t.cancel()
}

// tunnelError puts an error of package net or crypto/tls into the transport's
// terms.
func tunnelError(op string, err error) error {
	cause := ucs.ErrConnReset
	var alert, timeout *net.OpError
	var nobody *tls.CertificateVerificationError
	var first tls.RecordHeaderError
	switch {
	case errors.As(err, &nobody), errors.As(err, &first):
		cause = ucs.ErrRejected
	case errors.As(err, &alert) && alert.Op == "remote error", errors.As(err, &alert) && alert.Op == "local error":
		cause = ucs.ErrRejected
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		cause = ucs.ErrTimedOut
	}
	return fmt.Errorf("%w: %s: %w", cause, op, err)
}

// leave is called when the iface closes its end: what was written before is
// still sent if the peer takes it in time.
func (t *tunnel) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone = true
	t.cancel() // ends a handshake, and nothing else
	switch {
	case t.sock == nil:
	case t.flushed.Load() && t.unsent() == 0:
		_ = t.sock.SetDeadline(time.Now())
	default:
		_ = t.sock.SetDeadline(time.Now().Add(t.linger))
	}
}

// because returns why the tunnel ended, err if it has not. t may be nil.
func (t *tunnel) because(err error) error {
	if t == nil {
		return err
	}
	return cmp.Or(t.why.Load(), err)
}

// delivered reports whether the peer's host has everything.
func (t *tunnel) delivered() bool {
	if t.why.Load() != nil {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.flushed.Load() && t.unsent() == 0
}

// unsent is the number of bytes that the peer's host has not taken yet; 0 also
// when the socket is closed.
func (t *tunnel) unsent() (n int) {
	raw, err := t.sock.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return n
}
