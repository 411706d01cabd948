// Package bench runs the measurements: for each test and size, the layers take turns in rounds of batches, so that all
// are measured in the same state of the machine.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/measure/tick"
	"github.com/gucx/gucx/perftest/internal/peers/oob"
	"github.com/gucx/gucx/perftest/internal/peers/session"
)

// Plan is the list of measurements.
type Plan struct {
	Tests  []Test
	Sizes  []int    // bytes; 0 is for tests whose messages may be empty
	Layers []string // from the lowest to the highest
	// Below returns the layer with which a layer is compared; "", or a layer that does not support the test, means the
	// previous one in Layers. nil: always the previous one.
	Below func(layer string) string

	Device    string
	Transport string
	Fabric    string

	// Iterations is the number of timed operations per layer, for tests of up to SmallSize bytes; for larger sizes it
	// is reduced so that about as many bytes are moved.
	Iterations int
	// Warmup is the number of untimed operations before, for tests of up to SmallSize bytes; for larger sizes it is reduced
	// like Iterations.
	Warmup int
	// Rounds is the number of turns into which the iterations of a layer are divided.
	Rounds int
	// Window is the number of operations that bandwidth tests post for each flush; for messages the maximum number of
	// unacknowledged ones.
	Window int
	// Variant is the variant that uct must use if an operation has variants.
	Variant layer.Variant
	// Memory is the class of memory of all layers that have several.
	Memory layer.Memory
	// Sleep: both sides sleep while they wait. Only ucp supports it.
	Sleep bool
	// Wildcard: tagged messages are received with any tag. Unexpected: receives are posted only after the messages have
	// arrived.
	Wildcard, Unexpected bool
	// Written: senders write the data of messages before they send them, and receivers read all of it. Only ucp supports it.
	Written bool
	// Rank is a percentile that records contain in addition to the usual ones; 0 for none.
	Rank float64
	// Histogram: records contain the distribution of times.
	Histogram bool
	// Layouts are the layouts of messages of ucp, for tests that support them.
	Layouts layer.Layouts
	// Strict: an operation that a transport does not support is an error. Otherwise its cells are omitted and reported
	// as Skips.
	Strict bool
	// Missing: layers that have no such operation at all are omitted without a Skip, if another layer has it.
	Missing bool
}

// SmallSize is the largest size in bytes for which Plan.Iterations and Plan.Warmup are not reduced.
const SmallSize = 8 << 10

// Check returns an error if a value of the plan is out of range.
func (p *Plan) Check() error {
	switch {
	case len(p.Tests) == 0 || len(p.Layers) == 0 || len(p.Sizes) == 0:
		return errors.New("nothing to measure: tests, layers and sizes must not be empty")
	case p.Iterations < 1 || p.Rounds < 1 || p.Warmup < 0:
		return errors.New("iterations and rounds must be at least 1, warm-up at least 0")
	case p.Rounds > maxRounds:
		return fmt.Errorf("%d rounds, at most %d", p.Rounds, maxRounds)
	case p.Rank < 0 || p.Rank > 100:
		return fmt.Errorf("percentile %v is outside 0..100", p.Rank)
	case p.Window < 1 || p.Window > maxWindow:
		return fmt.Errorf("window %d is outside 1..%d", p.Window, maxWindow)
	}
	for _, s := range p.Sizes {
		if s < 0 || s > MaxSize {
			return fmt.Errorf("size %d is outside 0..%d", s, MaxSize)
		}
	}
	if p.Cells() == 0 {
		return errEmpty
	}
	return nil
}

const (
	// maxWindow limits the sizes of the sample arrays and of a batch.
	maxWindow = 1 << 20
	// maxRounds is the limit at which each round still has a sample: see maxSamples.
	maxRounds = maxSamples
	// MaxSize is the largest size in bytes that can be measured.
	MaxSize = oob.MaxMemLen - guardLen
	// guardLen is the number of bytes after the data that must remain unchanged.
	guardLen = 4096
	// minWarmUp is the minimum time of a warm-up, in which caches, branch predictors and the clock frequency of the CPU
	// reach a steady state, also with few operations.
	minWarmUp = 200 * time.Microsecond
)

var errEmpty = errors.New("size 0: of the tests am and tag alone have messages that may be empty")

// Cells returns the number of cells of the plan: tests at one size.
func (p *Plan) Cells() (n int) {
	for _, t := range p.Tests {
		n += len(t.Sizes(p.Sizes))
	}
	return n
}

// windows returns the number of windows of one layer in one round at that size.
func (p *Plan) windows(size, window int) int {
	perRound := (reduced(p.Iterations, size) + p.Rounds - 1) / p.Rounds
	return max(1, (perRound+window-1)/window)
}

// reduced returns ops, or for sizes above SmallSize the number of operations that move about as many bytes.
func reduced(ops, size int) int {
	if size > SmallSize {
		ops = int(int64(ops) * SmallSize / int64(size))
	}
	return ops
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
	// Freezer, if not nil, stops the target while the clock runs.
	Freezer Freezer
	// Step is called after each round of a cell. It must return quickly.
	Step func(test string, size int)
	// Stalls gets a report if no operation has completed for StallLimit: one Write, by the goroutine of Run. nil: no
	// reports. The run continues.
	Stalls io.Writer
	// StallLimit is 0 for DefaultStallLimit.
	StallLimit time.Duration

	stall   stallWatch
	stopped bool // Freezer has stopped the target
	lanes   []*lane
	costs   map[int]cost // cost of the loop, by window
	driven  *lane        // the lane that the target progresses
	skips   []Skip
}

// lane is one layer of the run.
type lane struct {
	name   string
	conn   layer.Conn
	op     layer.Op
	s      *samples
	done   uint64 // number of operations of op so far
	moves  uint64 // number of posts and flushes that have returned, of all operations; some loops count a window as one
	driven bool   // the target must make progress meanwhile
}

// Skip is an omitted row.
type Skip struct {
	Layer, Test string
	Size        int
	Why         error
}

// Skips lists the rows that Run omitted.
func (r *Runner) Skips() []Skip { return r.skips }

// Run measures everything. It returns one record for each test, size and layer, in this order. Garbage collection is
// off while the clock runs. The caller should lock its goroutine to its thread, unless the target is a goroutine of this
// process: then switches between unlocked goroutines take less time.
func (r *Runner) Run(ctx context.Context) ([]result.Record, error) {
	records, err := r.run(ctx)
	return records, withCause(ctx, err)
}

// withCause adds the cause of the end of ctx to an error that it has led to.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w (%w)", cause, err)
	}
	return err
}

func (r *Runner) run(ctx context.Context) ([]result.Record, error) {
	r.costs = map[int]cost{}
	defer r.watchStalls()()
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
	if len(records) == 0 {
		return nil, fmt.Errorf("nothing could be measured: %w", r.skips[0].Why)
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
			Device: r.Plan.Device, Fabric: r.Plan.Fabric, MemLen: longest + guardLen, Memory: uint8(r.Plan.Memory), Sleep: r.Plan.Sleep})
		if err != nil {
			return err
		}
		r.lanes = append(r.lanes, &lane{name: name, conn: c})
	}
	return nil
}

// cell measures one test at one size through every layer that supports it.
func (r *Runner) cell(ctx context.Context, t Test, size int) ([]result.Record, error) {
	r.stall.what = fmt.Sprintf("%s of %d bytes", t.Name, size)
	lanes, err := r.ready(ctx, t, size)
	if err != nil {
		return nil, err
	}
	if len(lanes) == 0 {
		for range r.Plan.Rounds {
			r.Step(t.Name, size)
		}
		return nil, nil
	}
	p := r.Plan.pace(t, size)
	for _, l := range lanes {
		l.s = newSamples(p.samples*r.Plan.Rounds, r.Plan.Rounds)
		l.s.moves = &l.moves
	}
	r.cost(p.window)
	if err := r.frozen(lanes, func() error { return r.rounds(ctx, lanes, t, size, p) }); err != nil {
		return nil, err
	}
	records := r.records(t, size, p, lanes)
	for _, l := range lanes {
		if err := r.verify(ctx, l, t, size); err != nil {
			return nil, fmt.Errorf("%s: %w", l.name, err)
		}
	}
	return records, nil
}

// pace returns the pace of the test at a size.
func (p *Plan) pace(t Test, size int) pace {
	window := t.Window(p.Window)
	windows := p.windows(size, window)
	every := 1
	if t.Stream() {
		every = windows
	}
	return pace{warmup: reduced(p.Warmup, size), windows: windows, window: window, every: every,
		samples: min(windows, max(maxSamples/p.Rounds, 1))}
}

// ready prepares and returns the lanes that support the test at the size. Others are an error or skips, as the plan
// selects.
func (r *Runner) ready(ctx context.Context, t Test, size int) (lanes []*lane, err error) {
	var missing []Skip
	for _, l := range r.lanes {
		err := r.prepare(ctx, l, t, size)
		skip := Skip{l.name, t.Name, size, err}
		switch {
		case err == nil:
			lanes = append(lanes, l)
		case r.Plan.Missing && errors.Is(err, layer.ErrNoSuchOp):
			missing = append(missing, skip)
		case !r.Plan.Strict && errors.Is(err, errors.ErrUnsupported):
			r.skips = append(r.skips, skip)
		default:
			return nil, fmt.Errorf("%s: %w", l.name, err)
		}
	}
	switch {
	case len(lanes) > 0 || len(missing) < len(r.lanes):
		return lanes, nil
	case r.Plan.Strict:
		return nil, fmt.Errorf("%s: %w", missing[0].Layer, missing[0].Why)
	}
	r.skips = append(r.skips, missing...)
	return nil, nil
}

// frozen runs f while the target is stopped, if Freezer is set.
func (r *Runner) frozen(lanes []*lane, f func() error) error {
	if r.Freezer == nil {
		return f()
	}
	for _, l := range lanes {
		if l.driven {
			return fmt.Errorf("%s: the target has to take part and cannot be stopped", l.name)
		}
	}
	if err := r.Freezer.Freeze(); err != nil {
		return err
	}
	r.stopped = true
	defer func() { r.stopped = false }()
	return errors.Join(f(), r.Freezer.Thaw())
}

// rounds warms up all layers, and runs the rounds without garbage collection.
func (r *Runner) rounds(ctx context.Context, lanes []*lane, t Test, size int, p pace) error {
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for _, l := range lanes {
		if err := r.warm(ctx, l, p); err != nil {
			return fmt.Errorf("%s: warm-up: %w", l.name, err)
		}
	}
	for range r.Plan.Rounds {
		for _, l := range lanes {
			if err := r.turn(ctx, l, p); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
		}
		r.Step(t.Name, size)
	}
	return r.drive(ctx, nil)
}

func (r *Runner) warm(ctx context.Context, l *lane, p pace) error {
	if err := r.drive(ctx, l); err != nil {
		return err
	}
	n, err := warmUp(l.op, p.warmup, p.window, minWarmUp, &l.moves)
	l.done += uint64(n)
	return err
}

// turn runs one batch of a lane.
func (r *Runner) turn(ctx context.Context, l *lane, p pace) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := r.drive(ctx, l); err != nil {
		return err
	}
	if err := l.s.batch(l.op, p); err != nil {
		return err
	}
	l.done += uint64(p.all())
	return nil
}

// drive makes the target do what l needs; nothing if l is nil.
func (r *Runner) drive(ctx context.Context, l *lane) error {
	r.stall.begin(l)
	if l != nil && !l.driven {
		l = nil
	}
	if l == r.driven {
		return nil
	}
	r.driven = l
	if l == nil {
		return r.Session.Rest(ctx)
	}
	return r.Session.Drive(ctx, l.name)
}
