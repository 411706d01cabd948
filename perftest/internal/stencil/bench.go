package stencil

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/perftest/internal/msgrate"
	"github.com/gucx/gucx/perftest/internal/steps"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// nodes are two, as in the study.
const nodes = 2

// Bench runs the stencil on a rig with the shm fabric, in real time. It implements
// msgrate.Measurer: of a configuration it takes plan and inlining, and rates are puts
// of all threads of both nodes. Resources are those of one node.
type Bench struct {
	Rig            *msgrate.RealTime
	Rows, Cols     int // of the grid
	Iterations     int
	Ranks, Threads int // of a node, and of a rank
}

// Limits of the grid keep its serial run, which checks the result, to a second or two.
const (
	maxPoints = 1 << 22
	maxWork   = 1 << 28 // points times iterations
)

// Check says what is wrong with the sizes.
func (b *Bench) Check() error {
	switch {
	case b.Rows < 1 || b.Cols < 1 || b.Iterations < 1 || b.Ranks < 1 || b.Threads < 1:
		return errors.New("stencil: rows, columns, iterations, ranks and threads must be positive")
	case b.Rows > maxPoints/b.Cols || b.Iterations > maxWork/(b.Rows*b.Cols):
		return fmt.Errorf("stencil: %d x %d points and %d iterations are too many", b.Rows, b.Cols, b.Iterations)
	case b.Rows%(nodes*b.Ranks) != 0:
		return fmt.Errorf("stencil: %d rows for %d ranks: not as many for each", b.Rows, nodes*b.Ranks)
	case b.Cols%b.Threads != 0:
		return fmt.Errorf("stencil: %d columns for %d threads: not as many for each", b.Cols, b.Threads)
	}
	return nil
}

// inlineLimit is up to which length halos are put inline: what mlx5 copies to a
// BlueFlame register beside the header.
const inlineLimit = 200

// run is one run of a stencil.
type run struct {
	bench *Bench
	ranks []*rank
	all   barrier
	undo  cleanup.Stack
}

// Measure implements msgrate.Measurer. It checks the grid.
func (b *Bench) Measure(ctx context.Context, queues mlx5.Config, cfg msgrate.Config) (o msgrate.Outcome, err error) {
	if err := b.Check(); err != nil {
		return o, err
	}
	r := &run{bench: b}
	defer func() { err = errors.Join(err, r.undo.Run()) }()
	dev, err := b.Rig.Device(queues)
	if err != nil {
		return o, err
	}
	if err := r.open(dev, cfg); err != nil {
		return o, err
	}
	o.Config = cfg
	for _, k := range r.ranks[:b.Ranks] {
		res, _ := k.set.Resources()
		o.Resources.Add(res)
	}
	var threads []*thread
	for _, k := range r.ranks {
		threads = append(threads, k.threads...)
	}
	// Connections are made by the first puts, before the clock runs.
	r.restart(warmup)
	if _, err := steps.Run(ctx, threads); err != nil {
		return o, err
	}
	r.restart(b.Iterations)
	times, err := steps.Run(ctx, threads)
	if err != nil {
		return o, err
	}
	var messages []int64
	for _, t := range threads {
		messages = append(messages, t.puts)
	}
	o.Rates = msgrate.NewRates(messages, times.Begin, times.End)
	o.Rates.Begin = times.Zero.Add(slices.Min(times.Begin))
	return o, r.verify()
}

func (r *run) open(dev *verbs.Device, cfg msgrate.Config) error {
	b := r.bench
	r.all.threads = int64(nodes * b.Ranks * b.Threads)
	length := b.Cols / b.Threads * element
	inline := cfg.Inline && length <= inlineLimit
	ends := endpoint.Config{Plan: cfg.Plan, LockCQ: cfg.LockCQ, QPs: sides, CQDepth: sides}
	ends.Cap.MaxSendWR = max(cfg.Plan.QP, 1) // one of each thread on a QP
	if inline {
		ends.Cap.MaxInline = length
	}
	for i := range nodes * b.Ranks {
		k, err := openRank(dev, b, ends, inline, &r.all, &r.undo)
		if err != nil {
			return fmt.Errorf("rank %d: %w", i, err)
		}
		r.ranks = append(r.ranks, k)
		if i > 0 {
			if err := join(r.ranks[i-1], k); err != nil {
				return fmt.Errorf("rank %d: %w", i, err)
			}
		}
	}
	return nil
}

// warmup is the iterations before those that are measured: one for each parity.
const warmup = 2

// restart sets the initial grid, for a run of n iterations.
func (r *run) restart(n int) {
	row := 0
	for _, k := range r.ranks {
		k.grid[0].fill(row)
		row += k.grid[0].rows
		for _, t := range k.threads {
			t.phase, t.n, t.total, t.puts = putAbove, 0, n, 0
		}
	}
}

// verify compares the ranks' bands with a serial run: the operations at each point are
// the same, so results are equal to the last bit.
func (r *run) verify() error {
	b := r.bench
	want := serial(b.Rows, b.Cols, b.Iterations)
	row := 0
	for _, k := range r.ranks {
		got := k.grid[b.Iterations%2]
		for i := range got.rows {
			if j := firstDifference(got.row(i), want.row(row)); j >= 0 {
				return fmt.Errorf("%w: point %d, %d is %v, want %v", msgrate.ErrData, row, j, got.row(i)[j], want.row(row)[j])
			}
			row++
		}
	}
	return nil
}

// firstDifference is -1 if there is none.
func firstDifference(a, b []float64) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}
