// Package tunnel carries connections through TLS for an owner that polls
// descriptors. It knows bytes only, and nothing of what they mean.
//
// The owner has one end of a pair of unix sockets where a plain connection has its
// TCP socket, and treats it the same; two goroutines move bytes between the other
// end and the TLS connection:
//
//	owner -- pair of sockets -- outbound -> crypto/tls -- TCP
//	                         <- inbound  --
//
// crypto/tls cannot continue a write that was cut short, so it needs calls that
// block. The pair bounds what is under way.
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

// Tunnel is one connection through TLS. Its methods may be called from any
// goroutine and do not block; those that say so permit a nil Tunnel.
type Tunnel struct {
	inner  *net.UnixConn
	cancel context.CancelFunc
	linger time.Duration

	silence time.Duration // Group.Silence

	mu   sync.Mutex
	sock *net.TCPConn // nil until it is connected
	gone bool         // the owner has closed its end

	peer atomic.Pointer[Peer] // nil before the handshake

	why     uatomic.Error // the first reason why the tunnel ended
	flushed atomic.Bool   // everything was handed to the kernel, and the end announced
}

// Peer is what the handshake of TLS has established.
type Peer struct {
	// Name is the identity in the certificate of the peer; see tlspolicy.PeerName.
	Name string
	// Binding is the same at both ends of this TLS session and at no end of another one (RFC 9266).
	// A proof that contains it is of no use to somebody who passes it on.
	Binding []byte
}

// The parameters of Peer.Binding: RFC 9266, section 2.
const (
	bindingLabel = "EXPORTER-Channel-Binding"
	bindingLen   = 32
)

// Peer returns nil before the handshake. What is read from the owner's end comes after it.
func (t *Tunnel) Peer() *Peer { return t.peer.Load() }

// identify stores what the handshake has established.
func (t *Tunnel) identify(state tls.ConnectionState) error {
	b, err := state.ExportKeyingMaterial(bindingLabel, nil, bindingLen)
	if err == nil {
		t.peer.Store(&Peer{Name: tlspolicy.PeerName(&state), Binding: b})
	}
	return err
}

// bufLen is the length of the buffer of each direction.
const bufLen = 64 << 10

// newTunnel makes the pair; fd is the end of the owner.
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

// Ready is the first byte that the owner of a tunnel that dials reads. It says that the handshake
// has succeeded.
const Ready = 0

// run makes the handshake, whose error it returns, and then moves bytes until both
// directions have ended. ctx limits the handshake.
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

// Socket calls f with the TCP socket, unless there is none yet.
func (t *Tunnel) Socket(f func(*net.TCPConn)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sock != nil {
		f(t.sock)
	}
}

// attach notes the socket; false if the owner has lost interest.
func (t *Tunnel) attach(sock *net.TCPConn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sock = sock
	return !t.gone
}

// outbound moves what the owner writes, and then announces the end. What the
// peer still sends is read for the time of a graceful close.
func (t *Tunnel) outbound(secure *tls.Conn, sock *net.TCPConn) {
	_, err := io.CopyBuffer(onlyWriter{secure}, onlyReader{t.inner}, make([]byte, bufLen))
	if err == nil {
		err = secure.CloseWrite()
	}
	if err == nil {
		err = sock.CloseWrite()
	}
	if err != nil { // what the peer has sent before is still read
		t.why.CompareAndSwap(nil, inTerms("send", err))
	} else {
		t.flushed.Store(true)
	}
	_ = sock.SetReadDeadline(time.Now().Add(t.linger))
}

// inbound moves what the peer sends.
func (t *Tunnel) inbound(secure *tls.Conn) {
	_, err := io.CopyBuffer(onlyWriter{t.inner}, onlyReader{secure}, make([]byte, bufLen))
	if err != nil {
		t.end(inTerms("receive", err))
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

// end notes why the tunnel ends, and tells the owner by closing its way in. Only
// the first reason counts.
func (t *Tunnel) end(err error) {
	t.why.CompareAndSwap(nil, err)
	_ = t.inner.Close()
	t.cancel()
}

// inTerms puts an error of package net or crypto/tls into the terms of ucs.
func inTerms(op string, err error) error {
	return fmt.Errorf("%w: %s: %w", causeOf(err, ucs.ErrConnReset), op, err)
}

// causeOf is what an error of package net or crypto/tls means; otherwise, unless it
// says more.
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

// Leave is called when the owner has closed its end: what was written before is
// still sent if the peer takes it in time. t may be nil.
func (t *Tunnel) OwnerClosed() {
	if t == nil {
		return
	}
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

// Because returns why the tunnel ended, err if it has not. t may be nil.
func (t *Tunnel) Cause(err error) error {
	if t == nil {
		return err
	}
	return cmp.Or(t.why.Load(), err)
}

// Delivered reports whether the peer's host has everything.
func (t *Tunnel) Delivered() bool {
	if t.why.Load() != nil {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.flushed.Load() && t.unsent() == 0
}

// unsent is the number of bytes that the peer's host has not taken yet; 0 also
// when the socket is closed.
func (t *Tunnel) unsent() (n int) {
	raw, err := t.sock.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return n
}
