package stencil

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/perftest/internal/peers/children"
	"github.com/gucx/gucx/perftest/internal/studies/msgrate"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// Processes runs the stencil with a process for each rank, on the shm fabric. It implements
// msgrate.Measurer, like Bench. A thread reports a complete exchange to its neighbors by an
// additional put, which is not counted.
type Processes struct {
	Problem
	Start children.Start // starts a process that calls ServeRank with its end of the connection
}

// A rank's process replies, in this order: to a job with its windows, by side; to the windows of
// its neighbors when it is connected; to the request to warm up; to the request to run with a
// result; and to the request to end when it has closed everything.

// job is the work of a rank.
type job struct {
	Problem Problem
	Rank    int
	Queues  mlx5.Config
	Plan    endpoint.Plan
	Inline  bool
	LockCQ  bool
	Atomics bool
}

// windows are those of a rank's threads, or of its neighbors', by side of the rank.
type windows [sides][]Window

// result is a rank's part of the outcome.
type result struct {
	Rates     msgrate.Rates
	Resources verbs.Resources
	Band      []byte // its rows, in the layout of memory
}

// Measure implements msgrate.Measurer. It checks the grid.
func (p *Processes) Measure(ctx context.Context, queues mlx5.Config, cfg msgrate.Config) (o msgrate.Outcome, err error) {
	if err := p.Check(); err != nil {
		return o, err
	}
	var undo cleanup.Stack
	defer func() { err = errors.Join(err, undo.Run()) }()
	ranks, err := children.Launch(ctx, nodes*p.Ranks, p.Start, &undo)
	if err != nil {
		return o, err
	}
	results, err := runAll(ranks, func(i int) any { return job{p.Problem, i, queues, cfg.Plan, cfg.Inline, cfg.LockCQ, cfg.Atomics} })
	if ctx.Err() != nil {
		return o, context.Cause(ctx)
	}
	if err != nil {
		return o, err
	}
	var outcomes []msgrate.Outcome
	var bands []band
	for i, r := range results {
		each := msgrate.Outcome{Config: cfg, Rates: r.Rates}
		if i < p.Ranks {
			each.Resources = r.Resources
		}
		outcomes = append(outcomes, each)
		b := band{rows: len(r.Band) / element / p.Cols, cols: p.Cols, v: make([]float64, len(r.Band)/element)}
		decode(b.v, r.Band)
		bands = append(bands, b)
	}
	return msgrate.Together(outcomes), p.verify(bands)
}

// runAll goes through the protocol with all ranks.
func runAll(ranks children.List, job func(int) any) ([]result, error) {
	all, err := children.Query[windows](ranks, job)
	if err != nil {
		return nil, err
	}
	n := len(all)
	beside := func(i int) any {
		return windows{above: all[(i+n-1)%n][below], below: all[(i+1)%n][above]}
	}
	if _, err := children.Query[struct{}](ranks, beside); err != nil {
		return nil, err
	}
	if _, err := children.Query[struct{}](ranks, children.Go); err != nil {
		return nil, err
	}
	results, err := children.Query[result](ranks, children.Go)
	if err != nil {
		return nil, err
	}
	_, err = children.Query[struct{}](ranks, children.Go)
	return results, err
}

// ServeRank runs a rank until conn ends, or until it has replied with its result. An error of the
// measurement is in the reply, not returned. It closes conn.
func ServeRank(ctx context.Context, conn net.Conn) (err error) {
	defer func() { err = errors.Join(err, conn.Close()) }()
	w := &worker{line: children.NewLine(conn), rig: &msgrate.RealTime{Fabric: softhca.FabricShm}}
	defer func() { err = errors.Join(err, w.undo.Run()) }()
	ctx = w.line.Follow(ctx)
	return w.line.Result(w.serve(ctx))
}

// serve does the steps of the protocol.
func (w *worker) serve(ctx context.Context) error {
	if err := w.open(); err != nil {
		return err
	}
	for _, answer := range []func() (any, error){
		func() (any, error) { return w.run(ctx, warmup) },
		func() (any, error) { return w.run(ctx, w.job.Problem.Iterations) },
		func() (any, error) { return nil, w.undo.Run() },
	} {
		var goOn struct{}
		if err := w.line.Receive(&goOn); err != nil {
			return err
		}
		if err := w.line.Reply(answer()); err != nil {
			return err
		}
	}
	return nil
}

// worker is a rank in a process of its own.
type worker struct {
	line *children.Line
	rig  msgrate.Rig
	job  job
	rank *rank
	undo cleanup.Stack

	resources verbs.Resources // before the first message
}

// open creates the rank and connects it.
func (w *worker) open() error {
	if err := w.line.Receive(&w.job); err != nil {
		return err
	}
	if err := w.line.Reply(w.prepare()); err != nil {
		return err
	}
	var d windows
	if err := w.line.Receive(&d); err != nil {
		return err
	}
	var err error
	for side, there := range d {
		err = errors.Join(err, w.rank.connectFar(side, there))
	}
	return w.line.Reply(nil, err)
}

func (w *worker) prepare() (d windows, err error) {
	j := &w.job
	if err := j.Problem.Check(); err != nil {
		return d, err
	}
	devs, err := w.rig.Devices(1, j.Queues)
	if err != nil {
		return d, err
	}
	s := settings{j.Plan, j.Inline, j.LockCQ, j.Atomics, w.rig.Counter}
	if w.rank, err = j.Problem.openRank(devs[0], j.Rank, s, &w.undo); err != nil {
		return d, fmt.Errorf("rank %d: %w", j.Rank, err)
	}
	w.resources, _ = w.rank.set.Resources()
	for side := range d {
		if d[side], err = w.rank.windows(side); err != nil {
			return d, err
		}
	}
	return d, nil
}

// run runs n iterations from the initial grid.
func (w *worker) run(ctx context.Context, n int) (r result, err error) {
	if r.Rates, err = iterate(ctx, w.rig, []*rank{w.rank}, n); err != nil {
		return r, err
	}
	r.Resources = w.resources
	b := w.rank.grid[n%2]
	r.Band = make([]byte, len(b.v)*element)
	encode(r.Band, b.v)
	return r, nil
}
