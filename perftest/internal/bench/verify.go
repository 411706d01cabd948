package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/gucx/gucx/perftest/internal/layer"
	"github.com/gucx/gucx/perftest/internal/pattern"
)

// ErrData says that an operation did not do what it should have.
var ErrData = errors.New("data verification failed")

// Seeds of the patterns: what memory holds before, what the timed operations
// move, and what one last operation moves, which cannot be left over.
const (
	seedBefore = 0x5eed0000 + iota
	seedTimed
	seedLast
	seedGuard
)

// prepare makes the operation and fills memory on both sides.
func (r *Runner) prepare(ctx context.Context, l *lane, t Test, size int) (err error) {
	l.done = 0
	switch {
	case t.Kind == layer.Put:
		pattern.Fill(l.conn.Local()[:size], seedTimed)
		err = r.Session.Fill(ctx, l.name, seedBefore, size)
	case t.Kind == layer.Get:
		pattern.Fill(l.conn.Local()[:size], seedBefore)
		pattern.Fill(guard(l.conn, size), seedGuard)
		err = r.Session.Fill(ctx, l.name, seedTimed, size)
	case t.Kind.Atomic():
		err = r.Session.SetWord(ctx, l.name, 0)
	}
	if err != nil {
		return err
	}
	l.op, err = l.conn.Op(layer.Spec{Kind: t.Kind, Size: size, Window: t.Window(r.Plan.Window)})
	return err
}

// guard is the part of the local buffer that a get of n bytes must leave alone.
func guard(c layer.Conn, n int) []byte { return c.Local()[n : n+guardLen] }

// verify checks what the operations did.
func (r *Runner) verify(ctx context.Context, l *lane, t Test, size int) error {
	switch {
	case t.Kind == layer.Put:
		return r.verifyPut(ctx, l, size)
	case t.Kind == layer.Get:
		return r.verifyGet(ctx, l, size)
	case t.Kind.Atomic():
		return r.verifyAtomic(ctx, l, t.Kind)
	}
	return nil
}

// once runs one more operation.
func (l *lane) once() error {
	if err := l.op.Post(); err != nil {
		return err
	}
	l.done++
	return l.op.Flush()
}

func (r *Runner) verifyPut(ctx context.Context, l *lane, size int) error {
	if err := r.Session.Check(ctx, l.name, seedTimed, size); err != nil {
		return fmt.Errorf("%w: %w", ErrData, err)
	}
	pattern.Fill(l.conn.Local()[:size], seedLast)
	if err := l.once(); err != nil {
		return err
	}
	if err := r.Session.Check(ctx, l.name, seedLast, size); err != nil {
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
	if err := l.once(); err != nil {
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

// verifyAtomic expects that each of the operations added one, and that the last
// of those that fetch saw all others.
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
