package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/gucx/gucx/ucs"
)

// ErrUnauthenticated means that one side rejects the credentials of the other: a
// certificate or a token is missing or not trusted.
var ErrUnauthenticated = errors.New("the two sides do not authenticate each other")

// ErrTryAgain means that the listener is busy with other dialers.
var ErrTryAgain = errors.New("the listener is busy, try again later")

// RejectedError means that the listener has rejected the dialer. It matches ErrRejected, except with CodeUnreachable,
// and an error for its Code: ErrUnreachable for CodeUnreachable; ErrTryAgain for CodeTooMany
// and CodeNoFiles; ErrUnauthenticated for CodeTLS, CodeNoTLS, CodeToken, CodeNoToken
// and CodeWrongToken; ErrForeignUser for CodeForeignUser; ErrUnsupported for CodeVersion.
type RejectedError struct {
	Code Code
	// Reasons has, with CodeUnreachable, the reasons why the transports of the listener do not reach the dialer.
	Reasons []Reason
	Private []byte // private data of the listener's application
}

// Error returns the text of the code, with the reasons.
func (e *RejectedError) Error() string {
	text := "the listener rejects the connection: " + e.Code.String()
	for i, r := range e.Reasons {
		if i == 0 {
			text += "; at the listener: "
		} else {
			text += "; "
		}
		text += r.String()
	}
	return text
}

// Unwrap returns the errors that the rejection matches.
func (e *RejectedError) Unwrap() []error { return e.Code.errors() }

// Conn is the socket of a dialer. The dialer closes it when the EPs have connected.
type Conn struct {
	Answer *Answer  // nil before Exchange
	From   Identity // the listener, after Exchange

	socket  net.Conn
	session *session // nil without a token
}

// Local returns the local address of the socket, Remote its remote address; the zero AddrPort over a unix socket.
func (c *Conn) Local() netip.AddrPort  { return addrOf(c.socket.LocalAddr()) }
func (c *Conn) Remote() netip.AddrPort { return addrOf(c.socket.RemoteAddr()) }

// DialConfig configures Exchange. The zero value is the default.
type DialConfig struct {
	// AllowUIDs are the users, in addition to the effective user, that may be the listener at a unix socket. Other users are
	// rejected, because any user can bind a name.
	AllowUIDs []uint32
	// TLS, if it is not nil, is required from listeners at tcp addresses.
	TLS TLSConfigs
	// Token, if it is not empty, is required from all listeners: MinTokenLen bytes or more.
	Token string
}

// Connect connects to a listener, but sends no message. Errors: those of ctx;
// ErrUnreachable if no process listens at the address; ErrInvalidParam.
func Connect(ctx context.Context, network, address string) (*Conn, error) {
	socket, err := connect(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &Conn{socket: socket}, nil
}

// Exchange sends hello and waits for the reply. The caller must close c, also after an error.
// Errors: those of ctx; *RejectedError; ErrUnauthenticated; ErrUnsupported if the listener uses
// another protocol; ErrConnReset if it closed the socket; ErrInvalidParam if its reply is malformed;
// ErrForeignUser.
func (c *Conn) Exchange(ctx context.Context, hello *Hello, cfg *DialConfig) error {
	socket := c.socket // secure replaces it
	stop := context.AfterFunc(ctx, func() { _ = socket.SetDeadline(past) })
	err := c.exchange(hello, cfg)
	if !stop() { // the deadline of the socket is set or will be
		return ctx.Err()
	}
	return err
}

// ErrForeignUser means that one side belongs to a user that the other does not permit.
var ErrForeignUser = errors.New("the process there belongs to another user, which is not in AllowUIDs")

// exchange sends the HELLO and receives the reply.
func (c *Conn) exchange(hello *Hello, cfg *DialConfig) (err error) {
	if c.From, err = identify(c.socket); err != nil {
		return err
	}
	if !c.From.permitted(cfg.AllowUIDs) {
		return fmt.Errorf("%w: %v", ErrForeignUser, c.From)
	}
	if err = c.secure(cfg.TLS); err != nil {
		return err
	}
	if err = c.authenticate(cfg.Token); err != nil {
		return dialError(err)
	}
	_, werr := c.socket.Write(c.session.seal(hello.append(nil)))
	h, body, err := c.session.receive(c.socket, kindAccept, kindReject) // also after werr: a listener may reply and close before it has read everything
	switch {
	case err != nil && werr != nil:
		return reset(werr)
	case err != nil:
		return dialError(err)
	case h.kind == kindReject:
		return parseRejection(h, body)
	}
	c.Answer, err = parseAnswer(body)
	return err
}

// dialError returns the error of a dialer for an error of receive.
func dialError(err error) error {
	switch {
	case errors.Is(err, errRequiresTLS):
		return errProtocol // a listener never begins with TLS
	case isAlert(err):
		return fmt.Errorf("%w: %w: %w", ucs.ErrRejected, ErrUnauthenticated, err)
	}
	return reset(err)
}

// reset adds ErrConnReset to ECONNRESET and EPIPE.
func reset(err error) error {
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("%w: %w", ucs.ErrConnReset, err)
	}
	return err
}

// Wait waits for DONE from the listener, whose EP is then connected, or until Close is called. Errors: *RejectedError if
// this dialer was evicted for another one; ErrConnReset if the listener closed the socket.
func (c *Conn) Wait() error {
	h, body, err := c.session.receive(c.socket, kindDone, kindReject)
	switch {
	case err == nil && h.kind == kindDone:
		return nil
	case err == nil && h.kind == kindReject:
		return parseRejection(h, body)
	}
	return fmt.Errorf("the listener has closed the connection: %w", ucs.ErrConnReset)
}

// Close closes the socket.
func (c *Conn) Close() error { return c.socket.Close() }

// backlogPause is the time between attempts while the backlog of a unix socket is full. The
// kernel has no event for free room.
const backlogPause = 5 * time.Millisecond

// connect connects the socket.
func connect(ctx context.Context, network, address string) (net.Conn, error) {
	if err := checkAddress(network, address); err != nil {
		return nil, err
	}
	for {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		switch {
		case err == nil:
			return conn, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, context.DeadlineExceeded): // the deadline of ctx has passed, but its timer has not run yet
			return nil, context.DeadlineExceeded
		case errors.Is(err, syscall.EAGAIN):
			sleep(ctx, backlogPause)
		case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT):
			return nil, fmt.Errorf("%w: no process listens there (%w); start the listener first, or correct the address", ucs.ErrUnreachable, err)
		default:
			return nil, err
		}
	}
}

// sleep waits for d, or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
