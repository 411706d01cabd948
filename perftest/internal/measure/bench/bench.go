// Package bench runs the measurements: for each test and size, rounds of batches
// in which the layers take turns, so that all of them see the same machine.
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

// Plan says what to measure.
type Plan struct {
	Tests  []Test
	Sizes  []int    // bytes; 0 is for tests whose messages may be empty
	Layers []string // from the lowest up
	// Below names the layer that a layer is compared with; "", or a layer that the test does not have, means
	// the one before it in Layers. nil: always that.
	Below func(layer string) string

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
	// Window is how many operations bandwidth tests post for each flush; of messages how
	// many may be unacknowledged.
	Window int
	// Variant of uct to use where an operation has variants.
	Variant layer.Variant
	// Memory is the class of memory of all layers that have several.
	Memory layer.Memory
	// Sleep has both sides sleep where they wait. Only ucp does so.
	Sleep bool
	// Wildcard has tagged messages received with any tag, Unexpected only once they have
	// come.
	Wildcard, Unexpected bool
	// Rank is a percentile that records have besides the usual ones; 0 for none.
	Rank float64
	// Histogram has records with the distribution of times.
	Histogram bool
	// Layouts of messages of ucp, where a test has some.
	Layouts layer.Layouts
	// Strict makes what a transport cannot do an error. Else such cells are left out
	// and reported as Skips.
	Strict bool
	// Missing says that layers which do not have an operation at all are left out
	// without a word, as long as another has it.
	Missing bool
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
	// maxWindow keeps the sample arrays and a batch within reason.
	maxWindow = 1 << 20
	// maxRounds leaves each of them a sample: see maxSamples.
	maxRounds = maxSamples
	// MaxSize is the largest size in bytes that can be measured.
	MaxSize = oob.MaxMemLen - guardLen
	// guardLen bytes after the data are checked for being left alone.
	guardLen = 4096
	// minWarmUp lets caches, branch predictors and the clock of the processor
	// settle even where few operations were asked for.
	minWarmUp = 200 * time.Microsecond
)

var errEmpty = errors.New("size 0: of the tests am and tag alone have messages that may be empty")

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
	// Stalls gets a report, in one Write by the goroutine of Run, if no operation has completed for
	// StallLimit; nil for none. The run goes on.
	Stalls io.Writer
	// StallLimit is 0 for DefaultStallLimit.
	StallLimit time.Duration

	stall   stallWatch
	stopped bool // the target is, by Freezer
	lanes   []*lane
	costs   map[int]cost // of the loop, by window
	driven  *lane        // the one that the target progresses
	skips   []Skip
}

// lane is one layer of the run.
type lane struct {
	name   string
	conn   layer.Conn
	op     layer.Op
	s      *samples
	done   uint64 // operations of op so far
	moves  uint64 // posts and flushes that have returned, of all operations; some loops count a window as one
	driven bool   // the target makes progress meanwhile
}

// Skip is a row that was left out.
type Skip struct {
	Layer, Test string
	Size        int
	Why         error
}

// Skips lists the rows that Run left out.
func (r *Runner) Skips() []Skip { return r.skips }

// Run measures everything and returns one record for each test, size and layer,
// layers within sizes within tests. It switches garbage collection off while the clock
// runs. The calling goroutine is locked to its thread where figures are to be good; where
// they are not, and the target is a goroutine of this process, turns of two goroutines
// take less without.
func (r *Runner) Run(ctx context.Context) ([]result.Record, error) {
	records, err := r.run(ctx)
	return records, withCause(ctx, err)
}

// withCause puts the end of ctx before an error: whatever went wrong, it did because the
// run was ended.
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

// cell measures one test at one size through every layer that can do it.
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

// pace is that of a test at a size.
func (p *Plan) pace(t Test, size int) pace {
	window := t.Window(p.Window)
	windows := p.windows(size, window)
	every := 1
	if t.Stream() {
		every = windows
	}
	return pace{windows: windows, window: window, every: every, samples: min(windows, max(maxSamples/p.Rounds, 1))}
}

// ready prepares the lanes that can do the test at the size and returns them. Those
// that cannot become an error or skips, as the plan says.
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

// frozen runs f while the target is stopped, if it is to be.
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

// rounds warms every layer up and lets them take turns, without garbage
// collection.
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
	n, err := warmUp(l.op, r.Plan.Warmup, p.window, minWarmUp, &l.moves)
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

// drive has the target do what l needs, and nothing for nil.
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
