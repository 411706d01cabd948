package msgrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// Processes measures the threads of a configuration in several processes, as many in
// each: they share what the configuration says only with threads of their process.
type Processes struct {
	Count  int
	Fabric softhca.Fabric
	// Start starts a process that calls ServeWorker with the other end of the
	// connection. Closing the process closes the connection.
	Start func() (net.Conn, io.Closer, error)
}

// job is what a process is to do.
type job struct {
	Config Config
	Queues mlx5.Config
	Fabric softhca.Fabric
}

// jobReply is sent when the process is warm, and when it has run.
type jobReply struct {
	Outcome Outcome
	Error   string
}

// ServeWorker takes a job from conn, warms up, waits for the word to go on, and tells
// the outcome. rigFor makes the rig for a fabric. An error of the measurement is
// told, not returned. It closes conn.
func ServeWorker(ctx context.Context, conn net.Conn, rigFor func(softhca.Fabric) Rig) (err error) {
	defer func() { err = errors.Join(err, conn.Close()) }()
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	var j job
	if err := in.Decode(&j); err != nil {
		return err
	}
	p, err := Prepare(ctx, rigFor(j.Fabric), j.Queues, j.Config)
	if err != nil {
		return out.Encode(jobReply{Error: err.Error()})
	}
	reply, err := runWhenTold(ctx, p, in, out)
	// Closed before the reply: its receiver does not wait long for the process to end.
	if closeErr := p.Close(); closeErr != nil && reply.Error == "" {
		reply.Error = closeErr.Error()
	}
	if err != nil {
		return err
	}
	return out.Encode(reply)
}

// runWhenTold says that p is ready and runs it when the other end says so. An error is
// one of the connection.
func runWhenTold(ctx context.Context, p *Prepared, in *json.Decoder, out *json.Encoder) (reply jobReply, err error) {
	if err := out.Encode(jobReply{}); err != nil {
		return reply, err
	}
	var goOn struct{}
	if err := in.Decode(&goOn); err != nil {
		return reply, err
	}
	outcome, err := p.Run(ctx)
	reply.Outcome = outcome
	if err != nil {
		reply.Error = err.Error()
	}
	return reply, nil
}

// worker is the parent's end of a process.
type worker struct {
	conn net.Conn
	in   *json.Decoder
	out  *json.Encoder
}

func (w *worker) receive() (Outcome, error) {
	var r jobReply
	if err := w.in.Decode(&r); err != nil {
		return r.Outcome, err
	}
	if r.Error != "" {
		return r.Outcome, errors.New(r.Error)
	}
	return r.Outcome, nil
}

// Measure implements Measurer.
func (p *Processes) Measure(ctx context.Context, queues mlx5.Config, cfg Config) (o Outcome, err error) {
	threads := max(cfg.Threads, 1)
	if p.Count < 1 || threads%p.Count != 0 {
		return o, fmt.Errorf("%d threads in %d processes: not as many in each", threads, p.Count)
	}
	cfg.Threads = threads / p.Count
	var undo cleanup.Stack
	defer func() { err = errors.Join(err, undo.Run()) }()
	workers, err := p.start(&undo)
	if err != nil {
		return o, err
	}
	stop := context.AfterFunc(ctx, func() {
		for _, w := range workers {
			_ = w.conn.Close() // ends the waits below
		}
	})
	defer stop()
	outcomes, err := run(workers, job{Config: cfg, Queues: queues, Fabric: p.Fabric})
	if ctx.Err() != nil {
		return o, context.Cause(ctx)
	}
	if err != nil {
		return o, err
	}
	return together(outcomes), nil
}

func (p *Processes) start(undo *cleanup.Stack) (workers []*worker, err error) {
	for range p.Count {
		conn, proc, err := p.Start()
		if err != nil {
			return nil, err
		}
		undo.Add(proc.Close)
		workers = append(workers, &worker{conn, json.NewDecoder(conn), json.NewEncoder(conn)})
	}
	return workers, nil
}

// run has all workers warm before the first one runs.
func run(workers []*worker, j job) (outcomes []Outcome, err error) {
	for _, w := range workers {
		if err := w.out.Encode(j); err != nil {
			return nil, err
		}
	}
	for i, w := range workers {
		if _, err := w.receive(); err != nil {
			return nil, fmt.Errorf("process %d: %w", i, err)
		}
	}
	for _, w := range workers {
		if err := w.out.Encode(struct{}{}); err != nil {
			return nil, err
		}
	}
	for i, w := range workers {
		o, err := w.receive()
		if err != nil {
			return nil, fmt.Errorf("process %d: %w", i, err)
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, nil
}

// together adds up what processes of one machine measured at the same time.
func together(outcomes []Outcome) (sum Outcome) {
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
