// Package spmodel predicts the time of NAS SP on a cluster: each rank executes in virtual time the
// events of a time step that package sp defines, over the real ucp. The time of computation is that
// measured on class A for its type and amount, times a factor for another CPU; the numbers are not
// computed.
package spmodel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gucx/gucx/internal/softhca/timing"
	"github.com/gucx/gucx/perftest/internal/studies/cluster"
	"github.com/gucx/gucx/perftest/internal/studies/overlap"
	"github.com/gucx/gucx/perftest/internal/studies/protocol"
	"github.com/gucx/gucx/perftest/internal/studies/sp"
	"github.com/gucx/gucx/ucp"
)

// Study selects the predictions.
type Study struct {
	Params    timing.Params
	Classes   []sp.Class
	Ranks     int // a square number
	Nodes     int // each with a NIC; 0: one for each rank
	Protocols protocol.List
	Factors   []float64 // time of computation relative to that on the CPU of sp.ClassA
	Steps     int       // number of simulated time steps; all are equal
	Seed      uint64    // seed of the start times of ranks, and of Params.Jitter
}

// warmup is the number of time steps before the timed ones: the ranks get out of step as those of a
// program do, and queues are created on demand.
const warmup = 2

// Row is a prediction for a class with a protocol. Seconds are those of all time steps of the
// class.
type Row struct {
	Class    string
	Ranks    int
	Nodes    int
	Factor   float64
	Protocol string
	Seconds  float64
	Compute  float64 // part of computation, mean over the ranks
	Rest     float64 // part of waits and calls
	Relative float64 // to the first protocol of the class and factor
	Messages int     // sent by a rank in a step, mean over the ranks
	MiB      float64 // in them
	NotReady float64 // messages that a device sent again because no receive was posted, in a step of all ranks
}

// Check returns an error for an invalid study.
func (s *Study) Check() error {
	if len(s.Classes) == 0 || len(s.Protocols) == 0 || len(s.Factors) == 0 {
		return errors.New("nothing to predict")
	}
	if s.Steps < 1 {
		return fmt.Errorf("%d time steps: want 1 or more", s.Steps)
	}
	if slices.ContainsFunc(s.Factors, func(f float64) bool { return !(f > 0 && f <= maxFactor) }) {
		return fmt.Errorf("factors %v: want more than 0, and at most %d", s.Factors, maxFactor)
	}
	if s.Nodes < 0 || s.Nodes > s.Ranks {
		return fmt.Errorf("%d nodes for %d ranks: want no more nodes than ranks", s.Nodes, s.Ranks)
	}
	for _, c := range s.Classes {
		if _, err := sp.Program(c, s.Ranks, 0); err != nil {
			return err
		}
	}
	return nil
}

const maxFactor = 10_000

// Cases returns the maximum number of rows.
func (s *Study) Cases() int { return len(s.Classes) * len(s.Protocols) * len(s.Factors) }

// Run predicts all rows. Protocols that this build does not support are returned as refused. step,
// which may be nil, is called after each row. After an error it also returns the completed rows.
func (s *Study) Run(ctx context.Context, step func(label string)) (rows []Row, refused []overlap.Refused, err error) {
	for _, p := range s.Protocols {
		if _, err := overlap.Config(p); err != nil {
			refused = append(refused, overlap.Refused{Protocol: p.Name, Reason: err.Error()})
			continue
		}
		for _, class := range s.Classes {
			more, err := s.class(ctx, class, p, step)
			rows = append(rows, more...)
			if err != nil {
				return s.compare(rows), refused, fmt.Errorf("class %s over %s: %w", class.Name, p.Name, err)
			}
		}
	}
	return s.compare(rows), refused, nil
}

// compare groups the rows of a class and factor, and relates them to the first.
func (s *Study) compare(rows []Row) []Row {
	var list []Row
	for _, class := range s.Classes {
		for _, f := range s.Factors {
			first := 0.0
			for _, r := range rows {
				if r.Class != class.Name || r.Factor != f {
					continue
				}
				if first == 0 {
					first = r.Seconds
				}
				r.Relative = r.Seconds / first
				list = append(list, r)
			}
		}
	}
	return list
}

// class runs a class with a protocol, with each factor.
func (s *Study) class(ctx context.Context, class sp.Class, p protocol.Protocol, step func(string)) (rows []Row, err error) {
	cfg, err := overlap.Config(p)
	if err != nil {
		return nil, err
	}
	c, err := cluster.Open(cluster.Config{Params: s.Params, Ranks: s.Ranks, Nodes: s.Nodes, Seed: s.Seed, UCP: cfg.UCP, UCT: cfg.UCT})
	if err != nil {
		return nil, err
	}
	j := &job{c: c, class: class}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := j.prepare(); err != nil {
		return nil, err
	}
	for _, f := range s.Factors {
		if ctx.Err() != nil {
			return rows, context.Cause(ctx)
		}
		if step != nil {
			step(class.Name + " " + p.Name)
		}
		r, err := j.run(s.Steps, f)
		if err != nil {
			return rows, err
		}
		r.Nodes, r.Protocol = c.Nodes(), p.Name
		rows = append(rows, r)
	}
	return rows, nil
}

// job is a class on a cluster.
type job struct {
	c     *cluster.Cluster
	class sp.Class
	ranks []*rank
}

// prepare creates and connects the ranks: it runs a time step that takes no time.
func (j *job) prepare() error {
	for i, r := range j.c.Ranks() {
		events, err := sp.Program(j.class, len(j.c.Ranks()), i)
		if err != nil {
			return err
		}
		x, err := newRank(j.c, r, events)
		if err != nil {
			return err
		}
		j.ranks = append(j.ranks, x)
	}
	return j.c.Prepare(func(r *cluster.Rank) error { return j.ranks[r.ID()].step() })
}

// run runs some time steps and returns the time of all steps of the class.
func (j *job) run(steps int, factor float64) (row Row, err error) {
	costs := sp.ClassA.Scaled(factor)
	n := len(j.ranks)
	begin, end := make([]time.Duration, n), make([]time.Duration, n)
	before := j.c.Stats().NotReady
	_, err = j.c.Run(func(r *cluster.Rank) error {
		x := j.ranks[r.ID()]
		x.costs, x.computed = &costs, 0
		for i := range warmup + steps {
			if i == warmup {
				begin[r.ID()], x.computed = r.Now(), 0
			}
			if err := x.step(); err != nil {
				return err
			}
		}
		end[r.ID()] = r.Now()
		return nil
	})
	if err != nil {
		return row, err
	}
	scale := float64(j.class.Steps) / float64(steps)
	row = Row{Class: j.class.Name, Ranks: n, Factor: factor,
		Seconds:  scale * (slices.Max(end) - slices.Max(begin)).Seconds(),
		NotReady: float64(j.c.Stats().NotReady-before) / float64(warmup+steps)}
	bytes := 0
	for _, x := range j.ranks {
		row.Compute += scale * x.computed.Seconds() / float64(n)
		row.Messages += x.sends
		bytes += x.sent
	}
	row.Rest = row.Seconds - row.Compute
	row.Messages /= n
	row.MiB = float64(bytes) / float64(n) / (1 << 20)
	return row, nil
}

// rank executes its events.
type rank struct {
	r        *cluster.Rank
	events   []sp.Event
	bufs     [][]byte // number of events that are messages
	params   ucp.OpParams
	pending  []*ucp.Request
	costs    *sp.Costs // nil: computation takes no time
	computed time.Duration
	sends    int // in a step
	sent     int // bytes in them
}

func newRank(c *cluster.Cluster, r *cluster.Rank, events []sp.Event) (x *rank, err error) {
	x = &rank{r: r, events: events, bufs: make([][]byte, len(events))}
	total := 0
	for _, e := range events {
		total += aligned(e.Bytes)
		if e.Kind == sp.PostSend {
			x.sends++
			x.sent += e.Bytes
		}
	}
	if x.params.Mem, err = c.MemAlloc(max(total, 1)); err != nil {
		return nil, err
	}
	rest := x.params.Mem.Bytes()
	for i, e := range events {
		x.bufs[i] = rest[:e.Bytes]
		rest = rest[aligned(e.Bytes):]
	}
	return x, nil
}

// bufferAlign is the alignment of buffers: a cache line.
const bufferAlign = 64

func aligned(n int) int { return (n + bufferAlign - 1) &^ (bufferAlign - 1) }

// step is a time step.
func (x *rank) step() (err error) {
	for i := range x.events {
		if err = x.do(&x.events[i], x.bufs[i]); err != nil {
			return fmt.Errorf("rank %d: %w", x.r.ID(), err)
		}
	}
	return nil
}

func (x *rank) do(e *sp.Event, buf []byte) error {
	switch e.Kind {
	case sp.Compute:
		if x.costs != nil {
			d := x.costs.Time(*e)
			x.computed += d
			x.r.Compute(d)
		}
		return nil
	case sp.PostRecv:
		return x.posted(x.r.Worker().TagRecv(buf, tagOf(e.Peer, e.Tag), fullMask, nil, &x.params))
	case sp.PostSend:
		return x.posted(x.r.TagSend(e.Peer, tagOf(x.r.ID(), e.Tag), buf, &x.params))
	}
	for i, q := range x.pending {
		x.pending[i] = nil
		if err := x.r.Wait(q); err != nil {
			return err
		}
	}
	x.pending = x.pending[:0]
	return nil
}

const fullMask = ^uint64(0)

// tagOf contains the number of the sender in the upper half, as in middleware.
func tagOf(from, tag int) uint64 { return uint64(from)<<32 | uint64(tag) }

func (x *rank) posted(q *ucp.Request, err error) error {
	if q != nil {
		x.pending = append(x.pending, q)
	}
	return err
}
