package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/gucx/gucx/perftest/internal/measure/result"
)

// Counter counts events in the kernel, between Start and Stop: of the calling thread, of its
// process and of the target.
type Counter interface {
	Start() error
	// Stop returns the counts per operation, for ops operations.
	Stop(ops int) (*result.Counters, error)
}

// Count runs the operations of each record again while c counts, and adds the counts to the record.
// Call it after Run, so that the times of Run do not include it. It returns the records: after an
// error some have no counters, and a record is missing if its operations moved wrong data.
func (r *Runner) Count(ctx context.Context, c Counter, records []result.Record) ([]result.Record, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i := range records {
		rec := &records[i]
		if err := r.countRecord(ctx, c, rec); err != nil {
			err = withCause(ctx, fmt.Errorf("counters: %s of %d bytes: %s: %w", rec.Test, rec.Size, rec.Layer, err))
			rec.Counters = nil
			if errors.Is(err, ErrData) {
				records = slices.Delete(records, i, i+1)
			}
			return records, err
		}
	}
	return records, nil
}

// countRecord prepares, counts and verifies the operations of one record.
func (r *Runner) countRecord(ctx context.Context, c Counter, rec *result.Record) error {
	t, err := FindTest(rec.Test)
	if err != nil {
		return err
	}
	l := r.lane(rec.Layer)
	if err := r.prepare(ctx, l, t, rec.Size); err != nil {
		return err
	}
	p := r.Plan.pace(t, rec.Size)
	if err := r.frozen([]*lane{l}, func() error { return r.countBatches(ctx, c, rec, l, p) }); err != nil {
		return err
	}
	return r.verify(ctx, l, t, rec.Size)
}

// lane returns the open lane of a layer.
func (r *Runner) lane(name string) *lane {
	for _, l := range r.lanes {
		if l.name == name {
			return l
		}
	}
	return nil
}

// countBatches runs as many batches as were timed, after a warm-up. This process has no other work
// meanwhile.
func (r *Runner) countBatches(ctx context.Context, c Counter, rec *result.Record, l *lane, p pace) error {
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	if err := r.warm(ctx, l, p); err != nil {
		return fmt.Errorf("warm-up: %w", err)
	}
	if err := c.Start(); err != nil {
		return err
	}
	done, err := r.batches(ctx, l, p)
	counters, stopErr := c.Stop(max(done, 1))
	if err == nil {
		err = stopErr
	}
	if err != nil {
		return err
	}
	rec.Counters = counters
	return r.drive(ctx, nil)
}

// batches runs one batch per round and returns the number of operations.
func (r *Runner) batches(ctx context.Context, l *lane, p pace) (done int, err error) {
	for range r.Plan.Rounds {
		if ctx.Err() != nil {
			return done, context.Cause(ctx)
		}
		if _, err := plain(l.op, p, &l.moves); err != nil {
			return done, err
		}
		l.done += uint64(p.ops())
		done += p.ops()
	}
	return done, nil
}
