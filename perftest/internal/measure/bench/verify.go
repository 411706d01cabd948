package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/measure/pattern"
	"github.com/gucx/gucx/perftest/internal/peers/oob"
	"github.com/gucx/gucx/perftest/internal/peers/target"
)

// ErrData is the error of an operation with a wrong result.
var ErrData = layer.ErrData

// Seeds of the patterns: of memory before the operations, of the timed operations, and of one last
// operation, so that its data cannot be left from an earlier one.
const (
	seedBefore = 0x5eed0000 + iota
	seedTimed
	seedLast
	seedGuard
)

// prepare creates the operation and fills memory on both sides. Errors: errors.ErrUnsupported if
// the layer or its transport does not support it.
func (r *Runner) prepare(ctx context.Context, l *lane, t Test, size int) (err error) {
	l.done = 0
	l.driven = !r.Session.Loopback() && (t.Kind.TwoSided() || r.Session.NeedsTarget(l.name))
	if err := r.fill(ctx, l, t, size); err != nil {
		return err
	}
	return r.begin(ctx, l, r.spec(t, size))
}

// spec returns the operation of a test, with the pattern of the timed operations.
func (r *Runner) spec(t Test, size int) layer.Spec {
	s := layer.Spec{
		Kind: t.Kind, Size: size, Window: t.Window(r.Plan.Window), Seed: seedTimed,
		Wildcard: r.Plan.Wildcard && t.Kind.Tagged(), Unexpected: r.Plan.Unexpected && t.Kind.Tagged(),
		Written: r.Plan.Written && t.Kind.Message(),
	}
	if t.Kind.Laid() {
		s.Layouts = r.Plan.Layouts
	}
	return s
}

// begin creates the operation, and the target's part in it.
func (r *Runner) begin(ctx context.Context, l *lane, s layer.Spec) (err error) {
	if s.Kind.Varied() {
		s.Variant = r.Plan.Variant
	}
	if l.op, err = l.conn.Op(s); err != nil || !s.Kind.TwoSided() {
		return err
	}
	return r.Session.Prepare(ctx, l.name, s)
}

// fill fills the memory that a test uses.
func (r *Runner) fill(ctx context.Context, l *lane, t Test, size int) error {
	switch {
	case t.Kind == layer.Put:
		pattern.Fill(l.conn.Local()[:size], seedTimed)
		return r.Session.Fill(ctx, l.name, seedBefore, size)
	case t.Kind == layer.Get:
		pattern.Fill(l.conn.Local()[:size], seedBefore)
		pattern.Fill(guard(l.conn, size), seedGuard)
		return r.Session.Fill(ctx, l.name, seedTimed, size)
	case t.Kind == layer.PutPing:
		pattern.Fill(l.conn.Local()[:size], seedTimed)
		if _, err := target.Memory(l.conn.Memory(), oob.Request{Verb: oob.Fill, Seed: seedBefore, Len: size}); err != nil {
			return err
		}
		return r.Session.Fill(ctx, l.name, seedBefore, size)
	case t.Kind.TwoSided():
		pattern.Fill(l.conn.Local()[:size], seedTimed)
	case t.Kind.Atomic():
		return r.Session.SetWord(ctx, l.name, 0)
	}
	return nil
}

// guard returns the part of the local buffer that a get of n bytes must not change.
func guard(c layer.Conn, n int) []byte { return c.Local()[n : n+guardLen] }

// verify checks the results of the operations.
func (r *Runner) verify(ctx context.Context, l *lane, t Test, size int) error {
	switch {
	case t.Kind == layer.Put:
		return r.verifyPut(ctx, l, size)
	case t.Kind == layer.Get:
		return r.verifyGet(ctx, l, size)
	case t.Kind.Atomic():
		return r.verifyAtomic(ctx, l, t.Kind)
	case t.Kind == layer.PutPing:
		return r.verifyPing(ctx, l, size)
	case t.Kind.TwoSided():
		return r.verifyMessages(ctx, l, t, size)
	}
	return nil
}

// once runs one more operation.
func (r *Runner) once(ctx context.Context, l *lane) error {
	if err := r.drive(ctx, l); err != nil {
		return err
	}
	if err := l.more(1); err != nil {
		return err
	}
	return r.drive(ctx, nil)
}

// more runs n more operations and a flush.
func (l *lane) more(n int) error {
	for range n {
		if err := l.op.Post(); err != nil {
			return err
		}
		l.done++
		l.moves++
	}
	return l.op.Flush()
}

func (r *Runner) verifyPut(ctx context.Context, l *lane, size int) error {
	if err := r.Session.Check(ctx, l.name, seedTimed, size, nil); err != nil {
		return fmt.Errorf("%w: %w", ErrData, err)
	}
	pattern.Fill(l.conn.Local()[:size], seedLast)
	if err := r.once(ctx, l); err != nil {
		return err
	}
	if err := r.Session.Check(ctx, l.name, seedLast, size, nil); err != nil {
		return fmt.Errorf("%w: %w", ErrData, err)
	}
	return nil
}

func (r *Runner) verifyGet(ctx context.Context, l *lane, size int) error {
	if err := checkLocal(l.conn, seedTimed, size); err != nil {
		return err
	}
	if err := r.Session.Fill(ctx, l.name, seedLast, size); err != nil {
		return err
	}
	if err := r.once(ctx, l); err != nil {
		return err
	}
	return checkLocal(l.conn, seedLast, size)
}

func checkLocal(c layer.Conn, seed uint64, size int) error {
	if err := pattern.Check(c.Local()[:size], seed); err != nil {
		return fmt.Errorf("%w: read wrong data: %w", ErrData, err)
	}
	if err := pattern.Check(guard(c, size), seedGuard); err != nil {
		return fmt.Errorf("%w: bytes after the data were changed: %w", ErrData, err)
	}
	return nil
}

// verifyAtomic checks that each operation has added one, and that the last fetching operation has
// seen all others.
func (r *Runner) verifyAtomic(ctx context.Context, l *lane, k layer.Kind) error {
	got, err := r.Session.Word(ctx, l.name)
	if err != nil {
		return err
	}
	if got != l.done {
		return fmt.Errorf("%w: the word is %d after %d operations", ErrData, got, l.done)
	}
	if k == layer.Add {
		return nil
	}
	if old := l.op.Result(); old != l.done-1 {
		return fmt.Errorf("%w: operation %d returned %d", ErrData, l.done, old)
	}
	return nil
}

// finish finishes the target's part, which must have received all operations without fault. A
// loopback has received them itself.
func (r *Runner) finish(ctx context.Context, l *lane) error {
	if r.Session.Loopback() {
		return nil
	}
	n, err := r.Session.Finish(ctx, l.name)
	var wrong *oob.RemoteError
	if errors.As(err, &wrong) {
		return fmt.Errorf("%w: %w", ErrData, err)
	}
	if err != nil {
		return err
	}
	if n != l.done {
		return fmt.Errorf("%w: %d operations were posted and %d have come", ErrData, l.done, n)
	}
	return nil
}

// verifyPing checks the memory of both sides: the number of the last operation in its first and
// last byte, and the pattern between them.
func (r *Runner) verifyPing(ctx context.Context, l *lane, size int) error {
	if err := r.finish(ctx, l); err != nil {
		return err
	}
	stamp := byte(l.done)
	if err := r.Session.Check(ctx, l.name, seedTimed, size, &stamp); err != nil {
		return fmt.Errorf("%w: %w", ErrData, err)
	}
	if r.Session.Loopback() {
		return nil // the same memory
	}
	_, err := target.Memory(l.conn.Memory(), oob.Request{Verb: oob.Check, Seed: seedTimed, Len: size, Stamp: &stamp})
	if err != nil {
		return fmt.Errorf("%w: answer: %w", ErrData, err)
	}
	return nil
}

const (
	// thoroughStream is the number of messages of a stream that are checked byte by byte: several
	// times the number of messages in send queues and slots of our transports.
	thoroughStream = 1000
	// thoroughPings is the same for a ping-pong, with one message in flight.
	thoroughPings = 32
	// thoroughLen is the maximum number of bytes that are checked.
	thoroughLen = 1 << 20
)

// verifyMessages sends more messages, but at most as many as were measured, with another pattern.
// The receiver checks every byte.
func (r *Runner) verifyMessages(ctx context.Context, l *lane, t Test, size int) error {
	if err := r.finish(ctx, l); err != nil {
		return err
	}
	pattern.Fill(l.conn.Local()[:size], seedLast)
	s := r.spec(t, size)
	s.Seed, s.Thorough = seedLast, true
	if err := r.begin(ctx, l, s); err != nil {
		return err
	}
	l.done = 0
	if err := r.drive(ctx, l); err != nil {
		return err
	}
	if err := l.thorough(t, min(max(thoroughLen/max(size, 1), 1), r.Plan.Iterations)); err != nil {
		return err
	}
	if err := r.drive(ctx, nil); err != nil {
		return err
	}
	return r.finish(ctx, l)
}

// thorough runs operations that are checked byte by byte. most limits their number.
func (l *lane) thorough(t Test, most int) error {
	if t.Stream() {
		return l.more(min(thoroughStream, most))
	}
	for range min(thoroughPings, most) {
		if err := l.more(1); err != nil {
			return err
		}
	}
	return nil
}
