package ucp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gucx/gucx/ucp/internal/bootstrap"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// RejectedError is the cause of an error of [Worker.Dial] if the listener rejected the dialer.
// It matches the errors of its Code: ErrUnreachable for CodeUnreachable, ErrRejected for all
// others; also ErrTryAgain for CodeTooMany and CodeNoFiles; ErrUnauthenticated for CodeTLS,
// CodeNoTLS, CodeToken, CodeNoToken and CodeWrongToken; ErrForeignUser for CodeForeignUser;
// ErrUnsupported for CodeVersion.
type RejectedError struct {
	Code    Code
	Reasons []Reason // with CodeUnreachable: why each transport of the listener does not reach the dialer
	Private []byte   // from ConnRequest.Answer; may be nil
}

// Error returns the meaning of the code and the reasons.
func (e *RejectedError) Error() string { return e.inner().Error() }

// Unwrap returns the errors that it matches.
func (e *RejectedError) Unwrap() []error { return e.inner().Unwrap() }

func (e *RejectedError) inner() *bootstrap.RejectedError {
	r := &bootstrap.RejectedError{Code: bootstrap.Code(e.Code), Private: e.Private}
	for _, reason := range e.Reasons {
		r.Reasons = append(r.Reasons, bootstrap.Reason(reason))
	}
	return r
}

// asRejected returns err, as a *RejectedError if the listener rejected the dialer.
func asRejected(err error) error {
	r, ok := err.(*bootstrap.RejectedError) // bootstrap does not wrap it
	if !ok {
		return err
	}
	e := &RejectedError{Code: Code(r.Code), Private: r.Private}
	for _, reason := range r.Reasons {
		e.Reasons = append(e.Reasons, Reason(reason))
	}
	return e
}

// Reason explains why a transport of the listener does not reach the dialer, from the view of the listener,
// and names the setting that may change it.
type Reason struct {
	Transport, Device string // at most 255 bytes each
	Why               string // at most 512 bytes
}

// String returns the reason in one line.
func (r Reason) String() string { return bootstrap.Reason(r).String() }

// Code is the reason why a listener rejects a dialer.
type Code uint8

// Codes of a RejectedError.
const (
	CodeRejected    Code = Code(bootstrap.CodeRejected)    // ListenConfig.Accept has returned false
	CodeVersion     Code = Code(bootstrap.CodeVersion)     // the listener uses another version of the protocol
	CodeMalformed   Code = Code(bootstrap.CodeMalformed)   // the listener rejects the worker address as malformed
	CodeForeignUser Code = Code(bootstrap.CodeForeignUser) // ListenConfig.AllowUIDs does not name the user
	CodeUnreachable Code = Code(bootstrap.CodeUnreachable) // the workers have no transport in common
	CodeTooMany     Code = Code(bootstrap.CodeTooMany)     // too many others dial
	CodeTLS         Code = Code(bootstrap.CodeTLS)         // the listener requires TLS
	CodeNoTLS       Code = Code(bootstrap.CodeNoTLS)       // the dialer requires TLS, and the listener does not use it
	CodeNoFiles     Code = Code(bootstrap.CodeNoFiles)     // the listener is out of file descriptors
	CodeToken       Code = Code(bootstrap.CodeToken)       // the listener requires a token (Config.AuthToken)
	CodeNoToken     Code = Code(bootstrap.CodeNoToken)     // the dialer requires a token, and the listener has none
	CodeWrongToken  Code = Code(bootstrap.CodeWrongToken)  // the listener has another token
	CodeTooManyEPs  Code = Code(bootstrap.CodeTooManyEPs)  // the dialing worker has as many EPs as Config.MaxEPsPerPeer of the listener permits
)

// String returns the meaning of the code, for an error message about the listener.
func (c Code) String() string { return bootstrap.Code(c).String() }

// ErrForeignUser means that the process at a unix socket belongs to a user that DialConfig.AllowUIDs
// does not contain.
var ErrForeignUser = bootstrap.ErrForeignUser

// ErrTryAgain means that the listener is busy with other dialers, and that the same call may succeed
// later.
var ErrTryAgain = bootstrap.ErrTryAgain

// ErrUnauthenticated means that the listener or the dialer does not accept the credentials of the
// other side: a certificate or token is missing or not trusted, or only one side requires one.
var ErrUnauthenticated = bootstrap.ErrUnauthenticated

// DialConfig configures [Worker.Dial]. The zero value is the default.
type DialConfig struct {
	// Private is sent to the listener. At most MaxPrivate bytes.
	Private []byte
	// EP configures the EP.
	EP EPConfig
	// AllowUIDs are the users, in addition to the effective user of this process, that may be the listener at a unix socket.
	// Dial rejects other users, because any user can listen on an abstract name.
	AllowUIDs []uint32
}

// Dial connects to a worker that listens; see [Worker.Listen] for networks and addresses. It
// returns when the EPs of both sides are connected, with the private data and the published keys of the
// listener. The socket is then closed.
// A worker may dial itself.
//
// Dial blocks and makes progress. If ctx is done first, Dial closes the socket and the EP, and returns the error of
// ctx. Without a deadline Dial waits for the reply while the listener's worker makes no
// progress, and then for the EPs to connect, as long as the listener permits
// (ListenConfig.HelloTimeout), but at most Config.WireupTimeout.
// Errors, besides those of [EP.Err] if the EP does not connect:
//
//   - ErrUnreachable, at once: no process listens there, or the workers have no transport in
//     common.
//   - *RejectedError: the listener rejected the dialer. It matches ErrRejected or ErrUnreachable; and ErrTryAgain if
//     the listener is busy or out of file descriptors.
//   - ErrUnsupported: the listener speaks another protocol.
//   - ErrForeignUser: one side does not permit the user of the other.
//   - ErrUnauthenticated: see [Worker.Listen], "TLS".
//   - ErrConnReset: the listener closed the socket.
//   - ErrTimedOut: the EPs have not connected within the time limit above.
//   - ErrTooLong, ErrClosed.
func (w *Worker) Dial(ctx context.Context, network, address string, cfg DialConfig) (*Peer, error) {
	if err := w.engine.Turn.Take(); err != nil {
		return nil, err
	}
	defer w.endBlocking()
	return w.dial(ctx, network, address, &cfg, w.engine.Until)
}

// dial is Dial without the exclusive turn. until makes progress and waits.
func (w *Worker) dial(ctx context.Context, network, address string, cfg *DialConfig, until untilFunc) (*Peer, error) {
	p, err := w.find(ctx, network, address, cfg, until)
	w.dialed(err)
	if err != nil {
		return nil, &Error{Op: "dial " + network + " " + address, Err: err}
	}
	return p, nil
}

// find exchanges addresses with a listener and connects to its worker.
func (w *Worker) find(ctx context.Context, network, address string, cfg *DialConfig, until untilFunc) (_ *Peer, err error) {
	if w.closed {
		return nil, ucs.ErrClosed
	}
	if err := checkPrivate(cfg.Private); err != nil {
		return nil, err
	}
	var socket *bootstrap.Conn
	err = w.runConcurrently(ctx, until, func(ctx context.Context) (err error) {
		socket, err = bootstrap.Connect(ctx, network, address)
		return err
	})
	if socket != nil {
		defer socket.Close()
	}
	if err != nil {
		return nil, err
	}
	if w.closed { // by another goroutine of a SharedWorker
		return nil, ucs.ErrClosed
	}
	if err = w.useNetwork(socket.Local(), false); err != nil {
		return nil, err
	}
	own := w.own()
	err = w.runConcurrently(ctx, until, func(ctx context.Context) error {
		hello := &bootstrap.Hello{Addr: own.packed, Private: cfg.Private, Within: wholeMillis(w.ctx.cfg.wireupTimeout())}
		return asRejected(socket.Exchange(ctx, hello, &bootstrap.DialConfig{AllowUIDs: cfg.AllowUIDs, TLS: w.ctx.tls, Token: w.ctx.token}))
	})
	if err != nil {
		return nil, err
	}
	e, err := w.newDialed(socket, own)
	if err != nil {
		return nil, err
	}
	p := &Peer{EP: e, From: Identity(socket.From), Local: socket.Local(), Private: slices.Clone(socket.Answer.Private)}
	if err = w.join(ctx, socket, e, until); err == nil {
		p.Keys, err = e.unpackAll(socket.Answer.Keys)
	}
	if err != nil {
		e.discard()
		return nil, err
	}
	e.onError = cfg.EP.OnError
	return p, nil
}

// runConcurrently runs f in another goroutine while the worker makes progress. It returns after f has
// returned. The error is that of f or, if the wait ended early, the reason, which also cancels the
// context of f.
func (w *Worker) runConcurrently(ctx context.Context, until untilFunc, f func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	result := make(chan error, 1)
	var over atomic.Bool // stored after result; the wait polls it
	go func() {
		result <- f(ctx)
		over.Store(true)
		w.Signal()
	}()
	err := until(ctx, over.Load)
	cancel()
	if ended := <-result; err == nil {
		err = ended
	}
	return err
}

// newDialed makes the EP to the worker of a listener, which expects it and has the address own of
// this side.
func (w *Worker) newDialed(socket *bootstrap.Conn, own localAddress) (*EP, error) {
	if w.closed { // by another goroutine of a SharedWorker
		return nil, ucs.ErrClosed
	}
	p, err := w.peers.FindAs(socket.Answer.Addr, func(a *wireup.Address) { w.reachAt(a, socket.Remote()) })
	if err != nil {
		return nil, err
	}
	if !p.Best[wireup.AM].OK {
		w.peers.Unused(p)
		if outOfFiles() {
			return nil, fmt.Errorf("%w: %w: no file descriptor is left", ucs.ErrUnreachable, ErrTryAgain)
		}
		return nil, fmt.Errorf("%w: %s", ucs.ErrUnreachable, w.unreachable(wireup.AM, p.Addr))
	}
	e := &EP{w: w, peer: p, identity: new(Identity(socket.From))}
	w.addPeerRef(e)
	e.makeLinkTo(socket.Answer.EP, own)
	e.link.within = attemptWithin(socket.Answer.Within, len(p.Aux))
	e.requestLane(wireup.AM)
	e.connectEagerly()
	return e, nil
}

// join waits until the EP is connected. The listener closes the socket if it gives up before.
func (w *Worker) join(ctx context.Context, socket *bootstrap.Conn, e *EP, until untilFunc) error {
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(socket.Answer.Within, func() { cancel(errLate) })
	defer late.Stop()
	watched := make(chan error, 1)
	var givenUp atomic.Bool // stored after watched
	go func() {
		err := asRejected(socket.Wait())
		if err == nil {
			late.Stop() // the EP of the listener is connected: the limit no longer applies
		}
		watched <- err
		givenUp.Store(err != nil)
		w.Signal()
	}()
	err := until(limited, func() bool { return e.lane(wireup.AM) != nil || e.state != epOpen || givenUp.Load() })
	w.addCloseError(socket.Close())
	why := <-watched
	switch {
	case err != nil && errors.Is(context.Cause(limited), errLate):
		return fmt.Errorf("%w: %w of %v", ucs.ErrTimedOut, errLate, socket.Answer.Within)
	case err != nil:
		return err
	case e.state != epOpen:
		return e.Err()
	case e.lane(wireup.AM) == nil:
		return why
	}
	return nil
}

// unpackAll unpacks the published keys of a listener.
func (e *EP) unpackAll(packed map[string][]byte) (map[string]*RKey, error) {
	keys := make(map[string]*RKey, len(packed))
	for name, b := range packed {
		k, err := e.Unpack(b)
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", name, err)
		}
		keys[name] = k
	}
	return keys, nil
}

// discard closes an EP that is not returned to the user, and its keys.
func (e *EP) discard() {
	for e.keys != nil {
		e.keys.Close()
	}
	e.roles.needed = 0                         // it must not connect any more
	if r, _ := e.Close(CloseForce); r != nil { // an error means that it is closed already
		r.Release()
	}
}
