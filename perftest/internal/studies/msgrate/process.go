package msgrate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/perftest/internal/peers/children"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// Processes measures the threads of a configuration in several processes, with an equal number in
// each. They share objects only with threads of their process.
type Processes struct {
	Count  int
	Fabric softhca.Fabric
	Start  children.Start // starts a process that calls ServeWorker with its end of the connection
}

// job is the work of a process.
type job struct {
	Config Config
	Queues mlx5.Config
	Fabric softhca.Fabric
}

// ServeWorker reads a job from conn, warms up, waits for the request to run, and replies with the
// outcome. The end of conn stops it. rigFor creates the rig for a fabric. An error of the
// measurement is in the reply, not returned. It closes conn.
func ServeWorker(ctx context.Context, conn net.Conn, rigFor func(softhca.Fabric) Rig) (err error) {
	defer func() { err = errors.Join(err, conn.Close()) }()
	line := children.NewLine(conn)
	ctx = line.Follow(ctx)
	return line.Result(work(ctx, line, rigFor))
}

// work does the steps of the protocol.
func work(ctx context.Context, line *children.Line, rigFor func(softhca.Fabric) Rig) error {
	var j job
	if err := line.Receive(&j); err != nil {
		return err
	}
	p, err := Prepare(ctx, rigFor(j.Fabric), j.Queues, j.Config)
	if err != nil {
		return line.Reply(nil, err)
	}
	outcome, failed, err := runOnRequest(ctx, p, line)
	// Closed before the reply: the receiver of the reply does not wait long for the process to
	// exit.
	failed = errors.Join(failed, p.Close())
	if err != nil {
		return err
	}
	return line.Reply(outcome, failed)
}

// runOnRequest replies that p is ready, and runs it at the next request. err is an error of the
// connection.
func runOnRequest(ctx context.Context, p *Prepared, line *children.Line) (o Outcome, failed, err error) {
	if err := line.Reply(nil, nil); err != nil {
		return o, nil, err
	}
	var goOn struct{}
	if err := line.Receive(&goOn); err != nil {
		return o, nil, err
	}
	o, failed = p.Run(ctx)
	return o, failed, nil
}

// Measure implements Measurer.
func (p *Processes) Measure(ctx context.Context, queues mlx5.Config, cfg Config) (o Outcome, err error) {
	threads := max(cfg.Threads, 1)
	if p.Count < 1 || threads%p.Count != 0 {
		return o, fmt.Errorf("%d threads in %d processes: not an equal number in each", threads, p.Count)
	}
	cfg.Threads = threads / p.Count
	var undo cleanup.Stack
	defer func() { err = errors.Join(err, undo.Run()) }()
	workers, err := children.Launch(ctx, p.Count, p.Start, &undo)
	if err != nil {
		return o, err
	}
	outcomes, err := runAll(workers, job{Config: cfg, Queues: queues, Fabric: p.Fabric})
	if ctx.Err() != nil {
		return o, context.Cause(ctx)
	}
	if err != nil {
		return o, err
	}
	return Together(outcomes), nil
}

// runAll waits until all workers are warm before it runs the first one.
func runAll(workers children.List, j job) ([]Outcome, error) {
	if _, err := children.Query[struct{}](workers, func(int) any { return j }); err != nil {
		return nil, err
	}
	return children.Query[Outcome](workers, children.Go)
}

// Together adds the outcomes of processes of one machine that ran at the same time.
func Together(outcomes []Outcome) (sum Outcome) {
	sum = outcomes[0]
	end := sum.Rates.Begin.Add(sum.Rates.Elapsed)
	for _, o := range outcomes[1:] {
		sum.Config.Threads += o.Config.Threads
		sum.Resources.Add(o.Resources)
		sum.Rates.CPU += o.Rates.CPU
		sum.Rates.Messages += o.Rates.Messages
		sum.Counts.add(o.Counts)
		sum.Rates.PerThread = append(sum.Rates.PerThread, o.Rates.PerThread...)
		if o.Rates.Begin.Before(sum.Rates.Begin) {
			sum.Rates.Begin = o.Rates.Begin
		}
		if e := o.Rates.Begin.Add(o.Rates.Elapsed); e.After(end) {
			end = e
		}
	}
	sum.Rates.Elapsed = max(end.Sub(sum.Rates.Begin), time.Nanosecond)
	sum.Rates.Total = perSecond(sum.Rates.Messages, sum.Rates.Elapsed)
	return sum
}
