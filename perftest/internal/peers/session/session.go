// Package session is the initiating side's view of a pair of processes: it opens
// layers on both ends, connects them and asks the target about its memory.
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

// endTimeout bounds the polite end of a session that was ended from outside, in
// which the target may have no part any more.
const endTimeout = 10 * time.Second

// caller is the way to the target: a connection, or a loopback.
type caller interface {
	Call(context.Context, oob.Request) (oob.Reply, error)
	Ask(context.Context, oob.Request, time.Duration) (oob.Reply, error)
	Close() error
}

// Session is a target that answers. One goroutine at a time.
type Session struct {
	peer      caller
	layers    layer.Set
	open      map[string]*end
	ctx       context.Context  // ends the waits of the layers
	release   func()           // of ctx, and of the watch of the target
	interrupt *layer.Interrupt // of ctx
	pid       int
	beside    bool
	loopback  bool
	patience  time.Duration
}

// end is the initiator's side of one layer.
type end struct {
	conn layer.Conn
	// needsTarget is set if not even one-sided operations end without the target's
	// progress.
	needsTarget bool
}

// Options are what New is told of the target. The zero value is for one in another
// process.
type Options struct {
	// Beside says that the target is a goroutine of this process.
	Beside bool
	// Why is asked for the reason once the target has closed the connection, and may
	// take a moment; nil for ErrEnded.
	Why func() error
	// Patience bounds the wait for one answer. 0 means no limit: the end of a target
	// on this host is seen at once, and how long a busy machine takes is not known.
	Patience time.Duration
}

// New says hello over c, which the Session closes. The end of ctx also ends waits
// in layers that are opened later, and so does the target's when it hangs up.
func New(ctx context.Context, c net.Conn, layers layer.Set, o Options) (*Session, error) {
	s := &Session{peer: oob.NewConn(c), layers: layers, open: map[string]*end{}, beside: o.Beside, patience: o.Patience}
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

// ErrEnded says that the target has closed the connection or is gone.
var ErrEnded = errors.New("the target has ended or closed the connection")

// ErrSilent says that the target has not answered within Options.Patience.
var ErrSilent = errors.New("no answer")

// watch makes the Session's context, which ends once the target hangs up.
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

// Explain prefers the end of the target over err, which it may have caused. It asks
// the target whether it is still there, and waits for the news of its end if not.
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

// hungUp reports whether a call failed because the other side has closed the
// connection or is gone, which the watch of it sees too.
func hungUp(err error) bool {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, unix.EPIPE, unix.ECONNRESET} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

// PID is the process id of the target, on its host; 0 for a loopback.
func (s *Session) PID() int { return s.pid }

// Loopback reports whether every layer is its own target.
func (s *Session) Loopback() bool { return s.loopback }

// NeedsTarget reports whether operations of an open layer, also one-sided ones, wait
// for the target's progress: it must be driven meanwhile.
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

// Open opens the named layer on both sides, connects it and completes an operation
// of it, so that nothing is set up while the clock runs.
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
	s.open[name] = &end{conn: c}
	if err := s.join(ctx, name, c, p); err != nil {
		return nil, fmt.Errorf("connect %s: %w", name, err)
	}
	return c, nil
}

// notOfTarget reports that the end of the target cannot have caused err.
func notOfTarget(err error) bool {
	var answer *oob.RemoteError
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, layer.ErrData) || errors.Is(err, oob.ErrVersion) || errors.As(err, &answer)
}

// join opens the target's end and connects both.
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

// Drive has the target progress a layer, or its part there, until the next request.
func (s *Session) Drive(ctx context.Context, name string) error {
	_, err := s.call(ctx, oob.Request{Verb: oob.Drive, Layer: name})
	return err
}

// Rest has the target do nothing any more.
func (s *Session) Rest(ctx context.Context) error {
	_, err := s.call(ctx, oob.Request{Verb: oob.Rest})
	return err
}

// Interrupt interrupts waits of the layers that are open.
func (s *Session) Interrupt() *layer.Interrupt { return s.interrupt }

// TargetState asks the target what its end of a layer waits for. ErrSilent if it does not reply
// within the limit; the session can be used as before.
func (s *Session) TargetState(ctx context.Context, name string, limit time.Duration) (string, error) {
	r, err := s.peer.Ask(ctx, oob.Request{Verb: oob.State, Layer: name}, limit)
	if err == oob.ErrNoReply {
		err = fmt.Errorf("%w within %v", ErrSilent, limit)
	}
	return r.State, err
}

// Prepare readies the target's part of an operation.
func (s *Session) Prepare(ctx context.Context, name string, o layer.Spec) error {
	_, err := s.call(ctx, oob.Request{Verb: oob.Prepare, Layer: name, Spec: &oob.Spec{
		Kind: uint8(o.Kind), Size: o.Size, Window: o.Window, Variant: uint8(o.Variant), Seed: o.Seed, Thorough: o.Thorough,
		Wildcard: o.Wildcard, Unexpected: o.Unexpected,
		SendLayout: uint8(o.Layouts.Send), RecvLayout: uint8(o.Layouts.Recv),
	}})
	return err
}

// Finish ends the target's part and returns how many operations have come there. An
// *oob.RemoteError says that one of them was wrong.
func (s *Session) Finish(ctx context.Context, name string) (uint64, error) {
	r, err := s.call(ctx, oob.Request{Verb: oob.Finish, Layer: name})
	return r.Value, err
}

// Fill has the target write a pattern over the first n bytes of its memory.
func (s *Session) Fill(ctx context.Context, name string, seed uint64, n int) error {
	_, err := s.call(ctx, oob.Request{Verb: oob.Fill, Layer: name, Seed: seed, Len: n})
	return err
}

// Check has the target compare the first n bytes of its memory with a pattern. stamp,
// if not nil, is what the first and the last byte must be instead.
func (s *Session) Check(ctx context.Context, name string, seed uint64, n int, stamp *byte) error {
	_, err := s.call(ctx, oob.Request{Verb: oob.Check, Layer: name, Seed: seed, Len: n, Stamp: stamp})
	return err
}

// SetWord has the target store v in the first word of its memory.
func (s *Session) SetWord(ctx context.Context, name string, v uint64) error {
	_, err := s.call(ctx, oob.Request{Verb: oob.SetWord, Layer: name, Value: v})
	return err
}

// Word returns the first word of the target's memory.
func (s *Session) Word(ctx context.Context, name string) (uint64, error) {
	r, err := s.call(ctx, oob.Request{Verb: oob.Word, Layer: name})
	return r.Value, err
}

// Close closes every layer while the target drives its end, since some layers take
// leave by a message, and ends the session. Once the session's context has ended, it waits for
// the target some seconds at most. Idempotent.
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
		// A part that was left unfinished would take the end for a failure.
		_, _ = s.peer.Call(ctx, oob.Request{Verb: oob.Finish, Layer: name})
		// An error is that of a target that is gone already; closing must go on.
		_, _ = s.peer.Call(ctx, oob.Request{Verb: oob.Drive, Layer: name})
		errs = append(errs, e.conn.Close())
	}
	_, _ = s.peer.Call(ctx, oob.Request{Verb: oob.Bye})
	return errors.Join(append(errs, s.peer.Close())...)
}
