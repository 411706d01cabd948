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

// ErrUnauthenticated says that one side does not accept the credentials of the other: a
// certificate or a token is missing, or not trusted.
var ErrUnauthenticated = errors.New("the two sides do not authenticate each other")

// ErrTryAgain says that the listener is busy with other dialers.
var ErrTryAgain = errors.New("the listener is busy, try again later")

// RejectedError says that the listener has turned the dialer away, and why. Besides ErrRejected,
// errors.Is finds what Code means: CodeUnreachable is ErrUnreachable, and not ErrRejected; CodeTooMany
// and CodeNoFiles are ErrTryAgain; CodeTLS, CodeNoTLS, CodeToken, CodeNoToken
// and CodeWrongToken are ErrUnauthenticated; CodeForeignUser is
// ErrForeignUser; CodeVersion is ErrUnsupported.
type RejectedError struct {
	Code Code
	// Reasons are why the transports of the listener do not reach the dialer, with CodeUnreachable.
	Reasons []Reason
	Private []byte // what the listener's application says to that
}

// Error says why, with the reasons.
func (e *RejectedError) Error() string {
	text := "the listener rejects the connection: " + e.Code.String()
	for i, r := range e.Reasons {
		if i == 0 {
			text += "; over there, "
		} else {
			text += "; "
		}
		text += r.String()
	}
	return text
}

// Unwrap returns the errors that the rejection is.
func (e *RejectedError) Unwrap() []error { return e.Code.errors() }

// Conn is the socket of a dialer. It stays open until the EPs have connected.
type Conn struct {
	Answer *Answer  // nil before Swap
	From   Identity // the listener, after Swap

	socket  net.Conn
	session *session // nil without a token
}

// Local is the address of this side, and Remote that at which it has reached the listener; the zero
// AddrPort over a unix socket.
func (c *Conn) Local() netip.AddrPort  { return addrOf(c.socket.LocalAddr()) }
func (c *Conn) Remote() netip.AddrPort { return addrOf(c.socket.RemoteAddr()) }

// DialConfig configures Swap. The zero value is the default.
type DialConfig struct {
	// AllowUIDs are users beside the effective one that may listen at a unix socket: anybody
	// may bind a name.
	AllowUIDs []uint32
	// TLS, if it is not nil, is demanded of listeners at tcp addresses.
	TLS TLSConfigs
	// Token, if it is not empty, is demanded of all listeners: MinTokenLen bytes or more.
	Token string
}

// Connect connects to a listener until ctx ends, and says nothing yet. Errors: those of ctx;
// ErrUnreachable if nobody listens there; ErrInvalidParam.
func Connect(ctx context.Context, network, address string) (*Conn, error) {
	socket, err := connect(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &Conn{socket: socket}, nil
}

// Swap sends hello and waits for the answer, until ctx ends. The caller closes c whatever comes of it.
// Errors: those of ctx; *RejectedError; ErrUnauthenticated; ErrUnsupported if the listener speaks
// another protocol; ErrConnReset if it hung up; ErrInvalidParam if its answer is malformed;
// ErrForeignUser.
func (c *Conn) Swap(ctx context.Context, hello *Hello, cfg *DialConfig) error {
	socket := c.socket // secure replaces it
	stop := context.AfterFunc(ctx, func() { _ = socket.SetDeadline(past) })
	err := c.swap(hello, cfg)
	if !stop() { // the socket has the deadline, or gets it
		return ctx.Err()
	}
	return err
}

// ErrForeignUser says that one side is of a user whom the other does not permit.
var ErrForeignUser = errors.New("the process there is of another user, whom AllowUIDs does not name")

// swap sends the HELLO and receives the answer.
func (c *Conn) swap(hello *Hello, cfg *DialConfig) (err error) {
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
	h, body, err := c.session.receive(c.socket) // a listener may answer, and hang up, before it has heard all
	switch {
	case err != nil && werr != nil:
		return reset(werr)
	case err != nil:
		return dialError(err)
	case h.kind == kindReject:
		return parseRejection(h, body)
	case h.kind != kindAccept:
		return malformed("message of kind %d", h.kind)
	}
	c.Answer, err = parseAnswer(body)
	return err
}

// dialError is an error of a message that a dialer has received.
func dialError(err error) error {
	switch {
	case errors.Is(err, errWantsTLS):
		return errProtocol // a listener never begins with TLS
	case isAlert(err):
		return fmt.Errorf("%w: %w: %w", ucs.ErrRejected, ErrUnauthenticated, err)
	}
	return reset(err)
}

// reset adds ErrConnReset to errors of the kernel that say so.
func reset(err error) error {
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("%w: %w", ucs.ErrConnReset, err)
	}
	return err
}

// Wait waits for what the listener says last, or until Close is called. nil: it knows that the
// dialer has connected. Errors: *RejectedError if another dialer took the place of this one;
// ErrConnReset if the listener hung up.
func (c *Conn) Wait() error {
	h, body, err := c.session.receive(c.socket)
	switch {
	case err == nil && h.kind == kindDone:
		return nil
	case err == nil && h.kind == kindReject:
		return parseRejection(h, body)
	}
	return fmt.Errorf("the listener has hung up: %w", ucs.ErrConnReset)
}

// Close hangs up.
func (c *Conn) Close() error { return c.socket.Close() }

// backlogPause is how long a dialer waits while the backlog of a unix socket is full; the
// kernel offers no event for that.
const backlogPause = 5 * time.Millisecond

// connect makes the connection.
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
		case errors.Is(err, context.DeadlineExceeded): // the clock is past the deadline of ctx, whose timer has not run
			return nil, context.DeadlineExceeded
		case errors.Is(err, syscall.EAGAIN):
			sleep(ctx, backlogPause)
		case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT):
			return nil, fmt.Errorf("%w: nobody listens there (%w); start the listener first, or correct the address", ucs.ErrUnreachable, err)
		default:
			return nil, err
		}
	}
}

// sleep waits for d, or for the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
