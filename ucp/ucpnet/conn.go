package ucpnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// Conn is a connection over the stream of an EP. Several goroutines may call its methods concurrently. The bytes of one Write
// are contiguous in the stream. Each of several concurrent Reads gets another part of the stream.
type Conn struct {
	w             *ucp.SharedWorker
	ep            *ucp.EP
	local, remote net.Addr

	open     context.Context // ends with Close
	shut     context.CancelCauseFunc
	writable context.Context // ends with CloseWrite, and with open
	endWrite context.CancelCauseFunc
	reading  deadline
	writing  deadline
	listener *Listener // nil if the connection was not accepted

	// Set for an accepted connection when its EP has failed and is closed. Protected by the worker's
	// lock.
	gone   error             // the reason; nil while the EP is open
	unread []*ucp.StreamData // received and not read
}

var _ net.Conn = (*Conn)(nil)

// NewConn returns a connection over the stream of an EP of the worker that was not connected by Dial or
// Listen of this package. The caller must not use the stream of the EP in any other way, and must
// not close the EP. NewConn may be called within SharedWorker.Do.
func NewConn(w *ucp.SharedWorker, ep *ucp.EP) *Conn {
	remote := net.Addr(Addr{})
	if ep.PeerIdentity().Network != "" {
		remote = peerAddr(ep.PeerIdentity())
	}
	return newConn(w, ep, Addr{}, remote)
}

func newConn(w *ucp.SharedWorker, ep *ucp.EP, local, remote net.Addr) *Conn {
	c := &Conn{w: w, ep: ep, local: local, remote: remote}
	c.open, c.shut = context.WithCancelCause(context.Background())
	c.writable, c.endWrite = context.WithCancelCause(c.open)
	c.reading.init(c.open)
	c.writing.init(c.writable)
	return c
}

// LocalAddr returns the local address of the socket of Dial or Listen: a *net.TCPAddr or
// *net.UnixAddr as for a connection of package net, or an Addr if the connection is from NewConn.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the address of the other end, of the same types as LocalAddr.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// PeerIdentity returns the identity of the peer: see [ucp.EP.PeerIdentity].
func (c *Conn) PeerIdentity() ucp.Identity { return c.ep.PeerIdentity() }

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline sets the time at which reads fail with os.ErrDeadlineExceeded, including reads that
// are blocked now. The zero time means no deadline.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.reading, t) }

// SetWriteDeadline is SetReadDeadline for writes.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.writing, t) }

func (c *Conn) setDeadline(d *deadline, t time.Time) error {
	if c.open.Err() != nil {
		return c.failure("set", net.ErrClosed)
	}
	d.at(t)
	return nil
}

// Read blocks until it has read at least one byte. It returns io.EOF after the peer has called Close or CloseWrite
// and all bytes were read.
func (c *Conn) Read(b []byte) (n int, err error) {
	ctx := c.reading.context()
	if ctx.Err() != nil {
		return 0, c.failure("read", c.reading.cause(ctx))
	}
	if len(b) == 0 {
		return 0, nil
	}
	n, err = c.receive(ctx, b)
	switch {
	case n > 0:
		return n, nil
	case ctx.Err() != nil:
		return 0, c.failure("read", c.reading.cause(ctx))
	case errors.Is(err, ucs.ErrPeerClosed), errors.Is(err, ucs.ErrStreamEnded):
		return 0, io.EOF
	}
	return n, c.failure("read", err)
}

// receive reads from the EP, or data that was received before the EP failed.
func (c *Conn) receive(ctx context.Context, b []byte) (n int, err error) {
	n, err = c.w.StreamRecv(ctx, c.ep, b)
	if n > 0 || err == nil {
		return n, err
	}
	c.w.Do(func(*ucp.Worker) { n, err = c.readUnread(b), c.reason(err) })
	return n, err
}

// reason returns the error of an EP that has failed and was closed; otherwise it returns err. The caller owns the worker.
func (c *Conn) reason(err error) error {
	if c.gone != nil {
		return c.gone
	}
	return err
}

// readUnread reads bytes that were received before the EP failed.
func (c *Conn) readUnread(b []byte) (n int) {
	for len(c.unread) > 0 && n < len(b) {
		d := c.unread[0]
		k := copy(b[n:], d.Bytes)
		n += k
		if d.Bytes = d.Bytes[k:]; len(d.Bytes) == 0 {
			d.Release()
			c.unread[0] = nil
			c.unread = c.unread[1:]
		}
	}
	return n
}

// setGone stores the reason and the unread data of an EP that has failed and will be closed. It is called from Progress.
func (c *Conn) setGone(why error) {
	c.gone = why
	for d := c.ep.StreamData(); d != nil; d = c.ep.StreamData() {
		c.unread = append(c.unread, d)
	}
}

// Write sends b. After it has returned, the caller may reuse b. At the deadline it returns the number of
// bytes sent and an error. The error matches syscall.EPIPE after CloseWrite, or if the peer has closed.
func (c *Conn) Write(b []byte) (n int, err error) {
	ctx := c.writing.context()
	if ctx.Err() != nil {
		return 0, c.failure("write", c.writing.cause(ctx))
	}
	n, err = c.w.StreamSend(ctx, c.ep, b)
	switch {
	case err == nil || n == len(b) && n > 0:
		return n, nil
	case ctx.Err() != nil:
		err = c.writing.cause(ctx)
	default:
		c.w.Do(func(*ucp.Worker) { err = c.reason(err) })
	}
	return n, c.failure("write", err)
}

// CloseWrite ends the stream to the peer: the peer's Read returns io.EOF after all written bytes, and blocked and
// later writes fail. Read still works. CloseWrite waits for transmission as Close does.
func (c *Conn) CloseWrite() error {
	var r *ucp.Request
	var err error
	c.w.Do(func(*ucp.Worker) {
		switch {
		case c.open.Err() != nil:
			err = net.ErrClosed
		case c.writable.Err() == nil:
			c.endWrite(os.NewSyscallError("write", syscall.EPIPE))
			r, err = c.ep.StreamEnd(nil)
			err = c.reason(err)
		}
	})
	if r != nil {
		ctx, cancel := context.WithTimeout(c.open, closeLimit)
		defer cancel()
		_ = c.w.Until(ctx, r.Done) // if ctx is done first, the end of the stream is sent later
		c.w.Do(func(*ucp.Worker) { r.Release() })
	}
	return c.failure("close", err)
}

// closeLimit limits the time for which Close waits for transmission. It is a common value of SO_LINGER, and a peer that
// reads needs less.
const closeLimit = 5 * time.Second

// Close closes the connection: blocked calls fail with net.ErrClosed, and the peer can still read all written
// bytes. Close waits for transmission, as the package documentation describes. If the
// connection is closed already, the error matches net.ErrClosed.
func (c *Conn) Close() error {
	var r *ucp.Request
	first := false
	c.w.Do(func(*ucp.Worker) {
		if first = c.open.Err() == nil; first {
			r = c.beginClose()
		}
	})
	if !first {
		return c.failure("close", net.ErrClosed)
	}
	if r == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	_ = c.w.Run(ctx, func() (*ucp.Request, error) { return r, nil }) // if ctx is done first, the data is sent later
	return nil
}

// beginClose ends the calls of the connection and starts to close its EP. The caller owns the worker.
func (c *Conn) beginClose() *ucp.Request {
	c.shut(net.ErrClosed)
	c.reading.stop()
	c.writing.stop()
	return c.closeEP()
}

// closeEP starts to close the EP, and releases unread data. The caller owns the worker.
func (c *Conn) closeEP() *ucp.Request {
	if c.listener != nil {
		delete(c.listener.conns, c.ep)
	}
	for _, d := range c.unread {
		d.Release()
	}
	c.unread = nil
	r, _ := c.ep.Close(ucp.CloseFlush) // an error means that the EP is closed already
	return r
}

// failure wraps the error of a call in a *net.OpError; nil if err is nil.
func (c *Conn) failure(op string, err error) error {
	if err == nil {
		return nil
	}
	return &net.OpError{Op: op, Net: c.remote.Network(), Source: c.local, Addr: c.remote, Err: netError(op, err)}
}

// netError wraps an error of ucp with the error that package net would return.
func netError(op string, err error) error {
	errno := syscall.Errno(0)
	switch {
	case errors.Is(err, ucs.ErrPeerClosed):
		errno = syscall.EPIPE
	case errors.Is(err, ucs.ErrConnReset):
		errno = syscall.ECONNRESET
	case errors.Is(err, ucs.ErrTimedOut):
		errno = syscall.ETIMEDOUT
	case errors.Is(err, ucs.ErrClosed):
		return fmt.Errorf("%w: %w", net.ErrClosed, err)
	default:
		return err
	}
	return fmt.Errorf("%w: %w", os.NewSyscallError(op, errno), err)
}
