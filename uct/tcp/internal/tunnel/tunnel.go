// Package tunnel sends connections through TLS for an owner that polls descriptors. It does not
// interpret the bytes.
//
// The owner has one end of a pair of unix sockets in place of a TCP socket. Two goroutines move
// bytes between the other end and the TLS connection:
//
//	owner -- pair of sockets -- outbound -> crypto/tls -- TCP
//	                         <- inbound  --
//
// crypto/tls cannot continue a partial write, so it needs blocking calls. The buffers of the pair
// limit the bytes in flight.
package tunnel

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	uatomic "go.uber.org/atomic"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/tlspolicy"
	"github.com/gucx/gucx/ucs"
)

// Tunnel is one connection through TLS. Any goroutine may call its methods, which do not block.
// Where their comments say so, the Tunnel may be nil.
type Tunnel struct {
	inner  *net.UnixConn
	cancel context.CancelFunc
	linger time.Duration

	silence time.Duration // Group.Silence

	mu   sync.Mutex
	sock *net.TCPConn // nil before the connection is established
	gone bool         // OwnerClosed was called

	peer atomic.Pointer[Peer] // nil before the handshake

	why     uatomic.Error // the first error that ended the tunnel
	flushed atomic.Bool   // all bytes and the end of the stream were written to the socket
}

// Peer is the result of the TLS handshake.
type Peer struct {
	// Name is the identity in the certificate of the peer; see tlspolicy.PeerName.
	Name string
	// Binding identifies this TLS session: both sides have the same value, and no other session has
	// it (RFC 9266). So a proof that contains it cannot be relayed to another session.
	Binding []byte
}

// The parameters of Peer.Binding: RFC 9266, section 2.
const (
	bindingLabel = "EXPORTER-Channel-Binding"
	bindingLen   = 32
)

// Peer returns nil before the handshake. It is set before the owner can read a byte of the peer.
func (t *Tunnel) Peer() *Peer { return t.peer.Load() }

// identify stores the result of the handshake.
func (t *Tunnel) identify(state tls.ConnectionState) error {
	b, err := state.ExportKeyingMaterial(bindingLabel, nil, bindingLen)
	if err == nil {
		t.peer.Store(&Peer{Name: tlspolicy.PeerName(&state), Binding: b})
	}
	return err
}

// bufLen is the size of the buffer of each direction, in bytes.
const bufLen = 64 << 10

// newTunnel makes the pair of sockets. fd is the end of the owner.
func newTunnel(linger, silence time.Duration) (t *Tunnel, ctx context.Context, fd int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, -1, os.NewSyscallError("socketpair", err)
	}
	inner, err := connOf[*net.UnixConn](fds[1])
	if err != nil {
		return nil, nil, -1, errors.Join(err, unix.Close(fds[0]))
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Tunnel{inner: inner, cancel: cancel, linger: linger, silence: silence}, ctx, fds[0], nil
}

// Ready is the first byte that the owner of a dialed tunnel reads. It means that the handshake has
// succeeded.
const Ready = 0

// run performs the handshake, whose error it returns, and then moves bytes until both directions
// have ended. ctx limits the handshake.
func (t *Tunnel) run(ctx context.Context, sock *net.TCPConn, secure *tls.Conn, dialed bool) error {
	if !t.attach(sock) {
		t.end(net.ErrClosed)
		return nil
	}
	err := secure.HandshakeContext(ctx)
	if err == nil {
		err = t.identify(secure.ConnectionState())
	}
	if err != nil {
		t.end(inTerms("TLS handshake", err))
		return err
	}
	if dialed {
		_, _ = t.inner.Write([]byte{Ready})
	}
	defer t.watchPeer(sock)()
	var in sync.WaitGroup
	in.Go(func() { t.inbound(secure) })
	t.outbound(secure, sock)
	in.Wait()
	t.end(nil)
	return nil
}

// Socket calls f with the TCP socket, if there is one.
func (t *Tunnel) Socket(f func(*net.TCPConn)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sock != nil {
		f(t.sock)
	}
}

// attach sets the socket. It reports false if the owner has closed its end.
func (t *Tunnel) attach(sock *net.TCPConn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sock = sock
	return !t.gone
}

// outbound moves bytes from the owner to the peer until the owner closes its end, and then
// half-closes the connection. After that, bytes of the peer are read for at most linger.
func (t *Tunnel) outbound(secure *tls.Conn, sock *net.TCPConn) {
	_, err := io.CopyBuffer(onlyWriter{secure}, onlyReader{t.inner}, make([]byte, bufLen))
	if err == nil {
		err = secure.CloseWrite()
	}
	if err == nil {
		err = sock.CloseWrite()
	}
	if err != nil { // bytes of the peer are still read
		t.why.CompareAndSwap(nil, inTerms("send", err))
	} else {
		t.flushed.Store(true)
	}
	_ = sock.SetReadDeadline(time.Now().Add(t.linger))
}

// inbound moves bytes from the peer to the owner.
func (t *Tunnel) inbound(secure *tls.Conn) {
	_, err := io.CopyBuffer(onlyWriter{t.inner}, onlyReader{secure}, make([]byte, bufLen))
	if err != nil {
		t.end(inTerms("receive", err))
		return
	}
	_ = t.inner.CloseWrite()
}

// onlyReader and onlyWriter hide ReadFrom and WriteTo of sockets from io.CopyBuffer, which would
// not use the buffer otherwise.
type (
	onlyReader struct{ io.Reader }
	onlyWriter struct{ io.Writer }
)

// end ends the tunnel and closes the inner socket, which the owner detects. It records only the
// first error.
func (t *Tunnel) end(err error) {
	t.why.CompareAndSwap(nil, err)
	_ = t.inner.Close()
	t.cancel()
}

// inTerms wraps an error of package net or crypto/tls with an error of package ucs.
func inTerms(op string, err error) error {
	return fmt.Errorf("%w: %s: %w", causeOf(err, ucs.ErrConnReset), op, err)
}

// causeOf returns the error of package ucs for an error of package net or crypto/tls; otherwise if
// there is none.
func causeOf(err, otherwise error) error {
	var alert, timeout *net.OpError
	var untrusted *tls.CertificateVerificationError
	var first tls.RecordHeaderError
	switch {
	case errors.As(err, &untrusted), errors.As(err, &first):
		return ucs.ErrRejected
	case errors.As(err, &alert) && (alert.Op == "remote error" || alert.Op == "local error"):
		return ucs.ErrRejected
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return ucs.ErrTimedOut
	}
	return otherwise
}

// OwnerClosed is called after the owner has closed its end. Bytes that were written before are
// still sent, within the linger time. t may be nil.
func (t *Tunnel) OwnerClosed() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone = true
	t.cancel() // ends only a handshake
	switch {
	case t.sock == nil:
	case t.flushed.Load() && t.unsent() == 0:
		_ = t.sock.SetDeadline(time.Now())
	default:
		_ = t.sock.SetDeadline(time.Now().Add(t.linger))
	}
}

// Cause returns the error that ended the tunnel, or err if the tunnel has not ended. t may be nil.
func (t *Tunnel) Cause(err error) error {
	if t == nil {
		return err
	}
	return cmp.Or(t.why.Load(), err)
}

// Delivered reports whether the peer's host has acknowledged all bytes, or the tunnel has failed.
func (t *Tunnel) Delivered() bool {
	if t.why.Load() != nil {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.flushed.Load() && t.unsent() == 0
}

// unsent returns the number of bytes that the peer's host has not acknowledged; 0 if the socket is
// closed.
func (t *Tunnel) unsent() (n int) {
	raw, err := t.sock.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return n
}
