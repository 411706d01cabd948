package ranksmodel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/internal/softhca/timing"
	"github.com/gucx/gucx/perftest/internal/studies/cluster"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/ucpgroup"
	"github.com/gucx/gucx/uct/sm"
)

// Study selects the operations, ranks and transports to predict.
type Study struct {
	Params     timing.Params // counts replace PostCall, WQEBuild, PollCall and CQERead
	Counts     *Counts
	Clock      float64   // of the CPU, in hertz
	CPI        []float64 // cycles per instruction
	Transports []string
	Tests      []Test
	Sizes      []int
	Ranks      int
	Nodes      int // each with a NIC; ranks of one node reach each other over sm
	Iterations int
	Seed       uint64 // seed of the start times of ranks, and of Params.Jitter
}

// Row is a test at a size over a transport.
type Row struct {
	Test      string
	Size      int
	Ranks     int
	Nodes     int
	CPI       float64
	Transport string
	// Time of a round, or of one of its messages, in nanoseconds. The time of a rank is the mean of its rounds; these
	// are the mean, minimum and maximum over all ranks.
	MeanNS, LeastNS, MostNS float64
	// Change is the relative difference to the first transport.
	Change float64
}

// Limits of a study.
const (
	mostCPI   = 100
	mostClock = 1e11
	mostRanks = 256
)

// Check returns an error for an invalid study.
func (s *Study) Check() error {
	switch {
	case len(s.Tests) == 0 || len(s.Sizes) == 0 || len(s.Transports) == 0 || len(s.CPI) == 0:
		return errors.New("nothing to predict")
	case s.Ranks < 2 || s.Ranks > mostRanks:
		return fmt.Errorf("%d ranks: in virtual time there are 2 to %d", s.Ranks, mostRanks)
	case s.Nodes < 1 || s.Nodes > s.Ranks:
		return fmt.Errorf("%d nodes for %d ranks: want 1 or more, and no more nodes than ranks", s.Nodes, s.Ranks)
	case s.Iterations < 1:
		return fmt.Errorf("%d rounds: want 1 or more", s.Iterations)
	case !(s.Clock > 0 && s.Clock <= mostClock):
		return fmt.Errorf("a clock of %v Hz: want more than 0, and at most %g", s.Clock, mostClock)
	}
	if slices.ContainsFunc(s.CPI, func(v float64) bool { return !(v > 0 && v <= mostCPI) }) {
		return fmt.Errorf("%v cycles per instruction: want more than 0, and at most %d", s.CPI, mostCPI)
	}
	for i, t := range s.Transports {
		if slices.Contains(s.Transports[:i], t) {
			return fmt.Errorf("duplicate transport %s", t)
		}
		if _, err := s.Counts.Of(t); err != nil {
			return err
		}
	}
	if s.SharesNodes() {
		_, err := s.Counts.OfSM()
		return err
	}
	return nil
}

// SharesNodes reports whether a node has several ranks.
func (s *Study) SharesNodes() bool { return s.Nodes < s.Ranks }

// Cases returns the number of rows.
func (s *Study) Cases() int { return len(s.CPI) * len(s.Transports) * len(s.Tests) * len(s.Sizes) }

// Run predicts all rows. step, which may be nil, is called before each row. After an error it also returns the
// completed rows.
func (s *Study) Run(ctx context.Context, step func(label string, size int)) (rows []Row, err error) {
	for _, cpi := range s.CPI {
		for _, t := range s.Transports {
			more, err := s.transport(ctx, t, cpi, step)
			rows = append(rows, more...)
			if err != nil {
				return s.compare(rows), fmt.Errorf("%s: %w", t, err)
			}
		}
	}
	return s.compare(rows), nil
}

// compare groups the transports of a test and size, and compares them with the first one.
func (s *Study) compare(rows []Row) (list []Row) {
	for _, t := range s.Tests {
		for _, size := range s.Sizes {
			for _, cpi := range s.CPI {
				first := 0.0
				for _, r := range rows {
					if r.Test != t.Name || r.Size != size || r.CPI != cpi {
						continue
					}
					if first == 0 {
						first = r.MeanNS
					}
					r.Change = r.MeanNS/first - 1
					list = append(list, r)
				}
			}
		}
	}
	return list
}

// settings selects protocols that do not depend on this machine: messages are copied; large ones use rendezvous with a
// zero-copy get, or are sent in fragments over datagrams. withSM permits sm, which reaches ranks of the same node.
func settings(transport string, withSM bool) []string {
	tls := ucp.Exact(transport)
	if withSM {
		tls += "," + ucp.Exact(sm.Name)
	}
	env := []string{"GUCX_TLS=" + tls, "GUCX_RNDV_THRESH=32k", "GUCX_ZCOPY_THRESH=32k"}
	if datagrams(transport) {
		return append(env, "GUCX_RNDV_SCHEME=am")
	}
	return append(env, "GUCX_RNDV_SCHEME=get_zcopy")
}

// transport predicts all tests over a transport.
func (s *Study) transport(ctx context.Context, name string, cpi float64, step func(string, int)) (rows []Row, err error) {
	c, err := s.open(name, cpi)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	j, err := newJob(c)
	if err != nil {
		return nil, err
	}
	for _, t := range s.Tests {
		for _, size := range s.Sizes {
			if ctx.Err() != nil {
				return rows, context.Cause(ctx)
			}
			if step != nil {
				step(name+" "+t.Name, size)
			}
			r, err := j.run(t, size, s.Iterations)
			if err != nil {
				return rows, fmt.Errorf("%s of %d bytes: %w", t.Name, size, err)
			}
			r.CPI, r.Transport = cpi, name
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// open opens the cluster for a transport.
func (s *Study) open(transport string, cpi float64) (*cluster.Cluster, error) {
	cfg, err := gucx.FromEnv(settings(transport, s.SharesNodes()), gucx.Own{})
	if err != nil {
		return nil, err
	}
	c := cluster.Config{Params: s.Params, Ranks: s.Ranks, Nodes: s.Nodes, Seed: s.Seed, UCP: cfg.UCP, UCT: cfg.UCT}
	cycle := timing.Time(cpi / s.Clock * float64(timing.Second))
	n, err := s.Counts.Of(transport)
	if err != nil {
		return nil, err
	}
	c.Software = n.apply(&c.Params, cycle)
	if s.SharesNodes() {
		n, err := s.Counts.OfSM()
		if err != nil {
			return nil, err
		}
		c.SM = n.sharedMemory(cycle)
	}
	return cluster.Open(c)
}

// job is the ranks of a cluster as a group.
type job struct {
	c     *cluster.Cluster
	ranks []*rank
}

// rank is one rank of a job.
type rank struct {
	r    *cluster.Rank
	comm *ucpgroup.Comm
}

func newJob(c *cluster.Cluster) (*job, error) {
	j := &job{c: c}
	var addrs [][]byte
	for _, r := range c.Ranks() {
		addrs = append(addrs, r.Worker().Address())
	}
	for _, r := range c.Ranks() {
		g, err := ucpgroup.Connect(r.Worker(), r.ID(), addrs)
		if err != nil {
			return nil, err
		}
		j.ranks = append(j.ranks, &rank{r, g.World()})
	}
	return j, nil
}

// wait advances virtual time until a request is complete.
func (x *rank) wait(q *ucpgroup.Request, err error) error {
	if q == nil || err != nil {
		return err
	}
	done := false
	var result error
	stalled := x.r.Until(func() bool {
		if !done {
			done, _, result = q.Test()
		}
		return done
	})
	return errors.Join(stalled, result)
}

// warmup is the number of rounds that connect ranks and fill their pools, before time starts.
const warmup = 2

// run runs a test.
func (j *job) run(t Test, size, iterations int) (Row, error) {
	n := len(j.ranks)
	rounds, checks := make([]func() error, n), make([]func() error, n)
	for i, x := range j.ranks {
		rounds[i], checks[i] = t.prepare(x, size)
	}
	spent := make([]time.Duration, n)
	repeat := func(times int, counts bool) cluster.Program {
		return func(r *cluster.Rank) error {
			x := j.ranks[r.ID()]
			for range times {
				if err := x.wait(x.comm.Ibarrier()); err != nil {
					return err
				}
				begin := r.Now()
				if err := rounds[r.ID()](); err != nil {
					return err
				}
				if counts {
					spent[r.ID()] += r.Now() - begin
				}
			}
			return nil
		}
	}
	if err := j.c.Prepare(repeat(warmup, false)); err != nil {
		return Row{}, err
	}
	if _, err := j.c.Run(repeat(iterations, true)); err != nil {
		return Row{}, err
	}
	for i, check := range checks {
		if err := check(); err != nil {
			return Row{}, fmt.Errorf("rank %d: %w", i, err)
		}
	}
	return t.row(spent, size, iterations, j.c.Nodes()), nil
}

// row computes the means over the timed ranks.
func (t *Test) row(spent []time.Duration, size, iterations, nodes int) Row {
	r := Row{Test: t.Name, Size: size, Ranks: len(spent), Nodes: nodes}
	if t.pairs {
		spent = spent[:1] // by the clock of rank 0, as in OSU's tests with two ranks
	}
	per := float64(iterations * max(1, t.messages))
	for _, d := range spent {
		r.MeanNS += float64(d) / per / float64(len(spent))
	}
	r.LeastNS, r.MostNS = float64(slices.Min(spent))/per, float64(slices.Max(spent))/per
	return r
}
