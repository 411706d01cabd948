// Package session is the initiator's view of a pair of processes: it opens layers on both sides,
// connects them, and queries the target about its memory.
package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/peers/oob"
)

// endTimeout is the maximum time for the graceful end of a session that was ended from outside,
// when the target may not run any more.
const endTimeout = 10 * time.Second

// caller is the way to the target: a connection, or a loopback.
type caller interface {
	Call(context.Context, oob.Request) (oob.Reply, error)
	CallWithin(context.Context, oob.Request, time.Duration) (oob.Reply, error)
	Close() error
}

// Session is a connection to a target that serves requests. One goroutine at a time may use it.
type Session struct {
	peer      caller
	layers    layer.Set
	open      map[string]*side
	ctx       context.Context  // ends the waits of the layers
	release   func()           // of ctx, and of the watch of the target
	interrupt *layer.Interrupt // cancels ctx
	pid       int
	beside    bool
	loopback  bool
	patience  time.Duration
}

// side is the initiator's side of one layer.
type side struct {
	conn layer.Conn
	// needsTarget: also one-sided operations complete only if the target makes progress.
	needsTarget bool
}

// Options are options of New about the target. The zero value is for a target in another process.
type Options struct {
	// Beside: the target is a goroutine of this process.
	Beside bool
	// Why returns the reason after the target has closed the connection, and may wait for a moment;
	// nil for ErrEnded.
	Why func() error
	// Patience is the maximum wait for a reply. 0 means no limit: the death of a target on this
	// host is detected at once, and the time that a busy machine needs is unknown.
	Patience time.Duration
}

// New sends hello over c, which the Session closes. The end of ctx, or of the target, also ends
// waits of layers that are opened later.
func New(ctx context.Context, c net.Conn, layers layer.Set, o Options) (*Session, error) {
	s := &Session{peer: oob.NewConn(c), layers: layers, open: map[string]*side{}, beside: o.Beside, patience: o.Patience}
	if err := s.watch(ctx, c, o.Why); err != nil {
		return nil, errors.Join(err, s.peer.Close())
	}
	reply, err := s.call(s.ctx, oob.Request{Verb: oob.Hello})
	if err != nil {
		err = s.Explain(err)
		s.release()
		return nil, errors.Join(err, s.peer.Close())
	}
	s.pid = int(reply.Value)
	return s, nil
}

// ErrEnded is the error after the target has closed the connection or has died.
var ErrEnded = errors.New("the target has ended or closed the connection")

// ErrSilent is the error if the target has not replied within Options.Patience.
var ErrSilent = errors.New("no answer")

// watch creates the context of the Session, which ends when the target closes the connection.
func (s *Session) watch(ctx context.Context, c net.Conn, why func() error) error {
	if why == nil {
		why = func() error { return ErrEnded }
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop, err := oob.Watch(c, func() { cancel(why()) })
	if err != nil {
		cancel(err)
		return err
	}
	s.ctx, s.interrupt = ctx, layer.NewInterrupt(ctx)
	s.release = func() {
		stop()
		cancel(nil)
	}
	return nil
}

// Context ends with that of New, with the target and with Close.
func (s *Session) Context() context.Context { return s.ctx }

// Explain returns the end of the target as the cause of err, if the target has ended, otherwise
// err. To find out, it sends the target a request, and waits for the report of its end if the
// request fails.
func (s *Session) Explain(err error) error {
	if err == nil || s.loopback || notOfTarget(err) {
		return err
	}
	if s.ctx.Err() == nil && hungUp(s.Rest(s.ctx)) {
		<-s.ctx.Done()
	}
	if cause := context.Cause(s.ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w (%w)", cause, err)
	}
	return err
}

// hungUp reports whether a call failed because the other side has closed the connection or has
// died. The watch detects that too.
func hungUp(err error) bool {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, unix.EPIPE, unix.ECONNRESET} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

// PID returns the process id of the target, on its host; 0 for a loopback.
func (s *Session) PID() int { return s.pid }

// Loopback reports whether every layer is its own target.
func (s *Session) Loopback() bool { return s.loopback }

// NeedsTarget reports whether operations of an open layer, also one-sided ones, wait for progress
// of the target. Then the target must be driven meanwhile.
func (s *Session) NeedsTarget(name string) bool {
	e := s.open[name]
	return e != nil && e.needsTarget
}

func (s *Session) call(ctx context.Context, r oob.Request) (oob.Reply, error) {
	if s.patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.patience, fmt.Errorf("%w within %v", ErrSilent, s.patience))
		defer cancel()
	}
	return s.peer.Call(ctx, r)
}

// Open opens the named layer on both sides, connects it and completes one operation, so that
// nothing is set up while the clock runs.
func (s *Session) Open(ctx context.Context, name string, p oob.Params) (_ layer.Conn, err error) {
	open, known := s.layers.Open[name]
	if !known {
		return nil, fmt.Errorf("unknown layer %q; there are %v", name, s.layers.Names)
	}
	c, err := open(layer.Config{Transport: p.Transport, Device: p.Device, Fabric: p.Fabric,
		MemLen: p.MemLen, Memory: layer.Memory(p.Memory), Context: s.ctx, Interrupt: s.interrupt, Beside: s.beside, Loopback: s.loopback, Sleep: p.Sleep})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	s.open[name] = &side{conn: c}
	if err := s.join(ctx, name, c, p); err != nil {
		return nil, fmt.Errorf("connect %s: %w", name, err)
	}
	return c, nil
}

// notOfTarget reports that the death of the target cannot have caused err.
func notOfTarget(err error) bool {
	var answer *oob.RemoteError
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, layer.ErrData) || errors.Is(err, oob.ErrVersion) || errors.As(err, &answer)
}

// join opens the target's side and connects both.
func (s *Session) join(ctx context.Context, name string, c layer.Conn, p oob.Params) error {
	local, err := c.Address()
	if err != nil {
		return err
	}
	remote, err := s.call(ctx, oob.Request{Verb: oob.Open, Layer: name, Params: &p})
	if err != nil {
		return err
	}
	if _, err := s.call(ctx, oob.Request{Verb: oob.Connect, Layer: name, Address: local}); err != nil {
		return err
	}
	if err := c.Connect(remote.Address); err != nil {
		return err
	}
	return s.try(ctx, name)
}

// Drive makes the target progress a layer, or its part there, until the next request.
func (s *Session) Drive(ctx context.Context, name string) error {
	_, err := s.call(ctx, oob.Request{Verb: oob.Drive, Layer: name})
	return err
}

// Rest ends a Drive.
func (s *Session) Rest(ctx context.Context) error {
	_, err := s.call(ctx, oob.Request{Verb: oob.Rest})
	return err
}

// Interrupt interrupts waits of the open layers.
func (s *Session) Interrupt() *layer.Interrupt { return s.interrupt }

// TargetState returns what the target's side of a layer waits for. It returns ErrSilent if the
// target does not reply within the limit; the session remains usable.
func (s *Session) TargetState(ctx context.Context, name string, limit time.Duration) (string, error) {
	r, err := s.peer.CallWithin(ctx, oob.Request{Verb: oob.State, Layer: name}, limit)
	if err == oob.ErrNoReply {
		err = fmt.Errorf("%w within %v", ErrSilent, limit)
	}
	return r.State, err
}

// Prepare prepares the target's part of an operation.
func (s *Session) Prepare(ctx context.Context, name string, o layer.Spec) error {
	_, err := s.call(ctx, oob.Request{Verb: oob.Prepare, Layer: name, Spec: &oob.Spec{
		Kind: uint8(o.Kind), Size: o.Size, Window: o.Window, Variant: uint8(o.Variant), Seed: o.Seed, Thorough: o.Thorough,
		Wildcard: o.Wildcard, Unexpected: o.Unexpected, Written: o.Written,
		SendLayout: uint8(o.Layouts.Send), RecvLayout: uint8(o.Layouts.Recv),
	}})
	return err
}

// Finish finishes the target's part and returns the number of operations received there. An
// *oob.RemoteError means that one of them was wrong.
func (s *Session) Finish(ctx context.Context, name string) (uint64, error) {
	r, err := s.call(ctx, oob.Request{Verb: oob.Finish, Layer: name})
	return r.Value, err
}

// Fill makes the target write a pattern to the first n bytes of its memory.
func (s *Session) Fill(ctx context.Context, name string, seed uint64, n int) error {
	_, err := s.call(ctx, oob.Request{Verb: oob.Fill, Layer: name, Seed: seed, Len: n})
	return err
}

// Check makes the target compare the first n bytes of its memory with a pattern. stamp, if not nil,
// is the value of the first and the last byte.
func (s *Session) Check(ctx context.Context, name string, seed uint64, n int, stamp *byte) error {
	_, err := s.call(ctx, oob.Request{Verb: oob.Check, Layer: name, Seed: seed, Len: n, Stamp: stamp})
	return err
}

// SetWord makes the target store v in the first 8 bytes of its memory.
func (s *Session) SetWord(ctx context.Context, name string, v uint64) error {
	_, err := s.call(ctx, oob.Request{Verb: oob.SetWord, Layer: name, Value: v})
	return err
}

// Word returns the first 8 bytes of the target's memory.
func (s *Session) Word(ctx context.Context, name string) (uint64, error) {
	r, err := s.call(ctx, oob.Request{Verb: oob.Word, Layer: name})
	return r.Value, err
}

// Close closes every layer while the target drives its side, because some layers disconnect by a
// message, and ends the session. If the session's context has ended, it waits at most endTimeout
// for the target. Idempotent.
func (s *Session) Close() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer s.release()
	stop := context.AfterFunc(s.ctx, func() { time.AfterFunc(endTimeout, cancel) })
	defer stop()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(s.open)) {
		e := s.open[name]
		delete(s.open, name)
		// An unfinished part would report the disconnect as a failure.
		_, _ = s.peer.Call(ctx, oob.Request{Verb: oob.Finish, Layer: name})
		// An error means that the target is gone already; closing continues.
		_, _ = s.peer.Call(ctx, oob.Request{Verb: oob.Drive, Layer: name})
		errs = append(errs, e.conn.Close())
	}
	_, _ = s.peer.Call(ctx, oob.Request{Verb: oob.Bye})
	return errors.Join(append(errs, s.peer.Close())...)
}
