// Package bench runs the measurements: for each test and size, rounds of batches
// in which the layers take turns, so that all of them see the same machine.
package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/gucx/gucx/perftest/internal/layer"
	"github.com/gucx/gucx/perftest/internal/oob"
	"github.com/gucx/gucx/perftest/internal/result"
	"github.com/gucx/gucx/perftest/internal/session"
	"github.com/gucx/gucx/perftest/internal/tick"
)

// Plan says what to measure.
type Plan struct {
	Tests  []Test
	Sizes  []int    // bytes, each at least 1
	Layers []string // from the lowest up

	Device    string
	Transport string
	Fabric    string

	// Iterations is how many operations of a test of up to SmallSize bytes are
	// timed in each layer; larger ones move about as many bytes as that.
	Iterations int
	// Warmup is how many operations go before, untimed.
	Warmup int
	// Rounds is in how many turns the layers share the iterations.
	Rounds int
	// Window is how many operations bandwidth tests post for each flush.
	Window int
}

// SmallSize is the largest size in bytes that gets all iterations of a plan.
const SmallSize = 8 << 10

// Check reports what in the plan is out of range.
func (p *Plan) Check() error {
	switch {
	case len(p.Tests) == 0 || len(p.Layers) == 0 || len(p.Sizes) == 0:
		return errors.New("nothing to measure: tests, layers and sizes must not be empty")
	case p.Iterations < 1 || p.Rounds < 1 || p.Warmup < 0:
		return errors.New("iterations and rounds must be at least 1, warm-up at least 0")
	case p.Window < 1 || p.Window > maxWindow:
		return fmt.Errorf("window %d is outside 1..%d", p.Window, maxWindow)
	}
	for _, s := range p.Sizes {
		if s < 1 || s > MaxSize {
			return fmt.Errorf("size %d is outside 1..%d", s, MaxSize)
		}
	}
	return nil
}

const (
	// maxWindow keeps the sample arrays and a batch within reason.
	maxWindow = 1 << 20
	// MaxSize is the largest size in bytes that can be measured.
	MaxSize = oob.MaxMemLen - guardLen
	// guardLen bytes after the data are checked for being left alone.
	guardLen = 4096
	// minWarmUp lets caches, branch predictors and the clock of the processor
	// settle even where few operations were asked for.
	minWarmUp = 200 * time.Microsecond
)

// Cells is the number of cells of the plan: tests at one size.
func (p *Plan) Cells() (n int) {
	for _, t := range p.Tests {
		n += len(t.Sizes(p.Sizes))
	}
	return n
}

// windows is how many windows one layer runs in one round at that size.
func (p *Plan) windows(size, window int) int {
	ops := p.Iterations
	if size > SmallSize {
		ops = int(int64(ops) * SmallSize / int64(size))
	}
	perRound := (ops + p.Rounds - 1) / p.Rounds
	return max(1, (perRound+window-1)/window)
}

// Freezer stops and continues the target process around measurements.
type Freezer interface {
	Freeze() error
	Thaw() error
}

// Runner measures a plan over a session.
type Runner struct {
	Plan    Plan
	Session *session.Session
	Clock   *tick.Clock
	// Freezer is nil unless the target is to be stopped while the clock runs.
	Freezer Freezer
	// Step is told after each round of a cell; it must not take long.
	Step func(test string, size int)

	lanes []*lane
	costs map[int]cost // of the loop, by window
}

// lane is one layer of the run.
type lane struct {
	name string
	conn layer.Conn
	op   layer.Op
	s    *samples
	done uint64 // operations of op so far
}

// Run measures everything and returns one record for each test, size and layer,
// layers within sizes within tests. It locks the calling goroutine to its thread
// while it measures and switches garbage collection off while the clock runs.
func (r *Runner) Run(ctx context.Context) ([]result.Record, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	records, err := r.run(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		// Whatever went wrong, it did because the run was ended.
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	return records, err
}

func (r *Runner) run(ctx context.Context) ([]result.Record, error) {
	r.costs = map[int]cost{}
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	var records []result.Record
	for _, t := range r.Plan.Tests {
		for _, size := range t.Sizes(r.Plan.Sizes) {
			recs, err := r.cell(ctx, t, size)
			if err != nil {
				return records, fmt.Errorf("%s of %d bytes: %w", t.Name, size, err)
			}
			records = append(records, recs...)
		}
	}
	return records, nil
}

func (r *Runner) open(ctx context.Context) error {
	longest := layer.WordLen
	for _, s := range r.Plan.Sizes {
		longest = max(longest, s)
	}
	for _, name := range r.Plan.Layers {
		c, err := r.Session.Open(ctx, name, oob.Params{Transport: r.Plan.Transport,
			Device: r.Plan.Device, Fabric: r.Plan.Fabric, MemLen: longest + guardLen})
		if err != nil {
			return err
		}
		r.lanes = append(r.lanes, &lane{name: name, conn: c})
	}
	return nil
}

// cell measures one test at one size through every layer.
func (r *Runner) cell(ctx context.Context, t Test, size int) ([]result.Record, error) {
	window := t.Window(r.Plan.Window)
	windows := r.Plan.windows(size, window)
	for _, l := range r.lanes {
		if err := r.prepare(ctx, l, t, size); err != nil {
			return nil, fmt.Errorf("%s: %w", l.name, err)
		}
		l.s = newSamples(windows*r.Plan.Rounds, r.Plan.Rounds)
	}
	c := r.cost(window)
	if err := r.frozen(func() error { return r.rounds(ctx, t, size, windows, window) }); err != nil {
		return nil, err
	}
	for _, l := range r.lanes {
		if err := r.verify(ctx, l, t, size); err != nil {
			return nil, fmt.Errorf("%s: %w", l.name, err)
		}
	}
	return r.records(t, size, windows, window, c), nil
}

// frozen runs f while the target is stopped, if it is to be.
func (r *Runner) frozen(f func() error) error {
	if r.Freezer == nil {
		return f()
	}
	if err := r.Freezer.Freeze(); err != nil {
		return err
	}
	return errors.Join(f(), r.Freezer.Thaw())
}

// rounds warms every layer up and lets them take turns, without garbage
// collection.
func (r *Runner) rounds(ctx context.Context, t Test, size, windows, window int) error {
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for _, l := range r.lanes {
		n, err := warmUp(l.op, r.Plan.Warmup, window, minWarmUp)
		l.done += uint64(n)
		if err != nil {
			return fmt.Errorf("%s: warm-up: %w", l.name, err)
		}
	}
	for range r.Plan.Rounds {
		for _, l := range r.lanes {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := l.s.batch(l.op, windows, window); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
			l.done += 2 * uint64(windows) * uint64(window)
		}
		r.Step(t.Name, size)
	}
	return nil
}
