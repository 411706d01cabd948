package stencil

import (
	"context"
	"errors"
	"fmt"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/perftest/internal/studies/msgrate"
	"github.com/gucx/gucx/perftest/internal/studies/steps"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// nodes is the number of nodes, as in the study.
const nodes = 2

// Bench runs the stencil on a rig, with all ranks in this process. It implements msgrate.Measurer.
// It uses plan, inlining and the locks of CQs of a configuration. Rates are puts of all threads of
// both nodes, Resources those of one node.
type Bench struct {
	Rig msgrate.Rig
	Problem
}

// Problem is the size of the grid and its division.
type Problem struct {
	Rows, Cols     int // of the grid
	Iterations     int
	Points         int // points of a put
	Ranks, Threads int // of a node, and of a rank
}

// settings are the parameters of ranks from a configuration and from the rig.
type settings struct {
	Plan                    endpoint.Plan
	Inline, LockCQ, Atomics bool
	Counter                 func() steps.Counter
}

// Limits of the grid. With them its serial run, which checks the result, takes at most a second or
// two.
const (
	maxPoints = 1 << 22
	maxWork   = 1 << 28 // points times iterations
)

// Check returns an error for invalid sizes.
func (b *Problem) Check() error {
	switch {
	case b.Rows < 1 || b.Cols < 1 || b.Iterations < 1 || b.Points < 1 || b.Ranks < 1 || b.Threads < 1:
		return errors.New("stencil: rows, columns, iterations, points of a put, ranks and threads must be positive")
	case b.Rows > maxPoints/b.Cols || b.Iterations > maxWork/(b.Rows*b.Cols):
		return fmt.Errorf("stencil: %d x %d points and %d iterations are too many", b.Rows, b.Cols, b.Iterations)
	case b.Rows%(nodes*b.Ranks) != 0:
		return fmt.Errorf("stencil: %d rows for %d ranks: not as many for each", b.Rows, nodes*b.Ranks)
	case b.Cols%b.Threads != 0:
		return fmt.Errorf("stencil: %d columns for %d threads: not as many for each", b.Cols, b.Threads)
	case b.Cols/b.Threads%b.Points != 0:
		return fmt.Errorf("stencil: %d columns of a thread in puts of %d points: want a divisor", b.Cols/b.Threads, b.Points)
	}
	return nil
}

// run is one run of a stencil.
type run struct {
	ranks []*rank
	undo  cleanup.Stack
}

// Measure implements msgrate.Measurer. It checks the grid.
func (b *Bench) Measure(ctx context.Context, queues mlx5.Config, cfg msgrate.Config) (o msgrate.Outcome, err error) {
	if err := b.Check(); err != nil {
		return o, err
	}
	r := &run{}
	defer func() { err = errors.Join(err, r.undo.Run()) }()
	if err := r.open(b, queues, cfg); err != nil {
		return o, err
	}
	o.Config = cfg
	for _, k := range r.ranks[:b.Ranks] {
		res, _ := k.set.Resources()
		o.Resources.Add(res)
	}
	// Connections are set up by the first puts, before the clock runs.
	if _, err := iterate(ctx, b.Rig, r.ranks, warmup); err != nil {
		return o, err
	}
	if o.Rates, err = iterate(ctx, b.Rig, r.ranks, b.Iterations); err != nil {
		return o, err
	}
	var bands []band
	for _, k := range r.ranks {
		bands = append(bands, k.grid[b.Iterations%2])
	}
	return o, b.verify(bands)
}

// open creates the ranks: the first half on one node, the others on the other.
func (r *run) open(b *Bench, queues mlx5.Config, cfg msgrate.Config) error {
	devs, err := b.Rig.Devices(nodes, queues)
	if err != nil {
		return err
	}
	s := settings{cfg.Plan, cfg.Inline, cfg.LockCQ, cfg.Atomics, b.Rig.Counter}
	for i := range nodes * b.Ranks {
		k, err := b.openRank(devs[i/b.Ranks], i, s, &r.undo)
		if err != nil {
			return fmt.Errorf("rank %d: %w", i, err)
		}
		r.ranks = append(r.ranks, k)
	}
	for i, k := range r.ranks {
		if err := join(k, r.ranks[(i+1)%len(r.ranks)], b.Rig.Loops()); err != nil {
			return fmt.Errorf("rank %d: %w", i, err)
		}
	}
	return nil
}

// iterate runs n iterations of ranks from the initial grid.
func iterate(ctx context.Context, rig msgrate.Rig, ranks []*rank, n int) (msgrate.Rates, error) {
	var threads []steps.Stepper
	for _, k := range ranks {
		k.restart(n)
		for _, t := range k.threads {
			threads = append(threads, t)
		}
	}
	times, err := rig.Run(ctx, threads)
	if err != nil {
		return msgrate.Rates{}, err
	}
	var messages []int64
	for _, k := range ranks {
		for _, t := range k.threads {
			messages = append(messages, t.puts)
		}
	}
	return msgrate.NewRates(messages, times), nil
}

// warmup is the number of untimed iterations: one for each parity.
const warmup = 2

// verify compares the ranks' bands with a serial run: the operations at each point are the same, so
// results are bit-identical.
func (b *Problem) verify(bands []band) error {
	want := serial(b.Rows, b.Cols, b.Iterations)
	row := 0
	for _, got := range bands {
		for i := range got.rows {
			if j := firstDifference(got.row(i), want.row(row)); j >= 0 {
				return fmt.Errorf("%w: point %d, %d is %v, want %v", msgrate.ErrData, row, j, got.row(i)[j], want.row(row)[j])
			}
			row++
		}
	}
	if row != b.Rows {
		return fmt.Errorf("%w: %d rows, want %d", msgrate.ErrData, row, b.Rows)
	}
	return nil
}

// firstDifference returns -1 if there is none.
func firstDifference(a, b []float64) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}
