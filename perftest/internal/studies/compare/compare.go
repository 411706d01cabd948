package compare

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/gucx/gucx/perftest/internal/measure/bench"
)

// side is one of the two programs.
type side interface {
	// run measures about ops operations and returns the nanoseconds per operation.
	run(ctx context.Context, c Case, ops int) (ns float64, err error)
}

// plan contains the parameters of a comparison.
type plan struct {
	Rounds int           // pairs of one phase
	Time   time.Duration // duration of one run
	Near   float64       // maximum probe of near CPUs, ns
}

// triesPerRound is the maximum number of pairs that are run for each pair that must count.
const triesPerRound = 3

// listener is notified of the progress of the comparison. Its methods must return quickly.
type listener interface {
	begin(c Case)
	pair(c Case, all []Pair)
	end(rows []Row)
}

// comparer runs cases.
type comparer struct {
	plan      plan
	ucx, ours side
	// probe measures the time in which a cache line moves between the CPUs, in nanoseconds one way.
	probe    func() (float64, error)
	listener listener
}

// compare runs pairs until enough pairs of one phase have been measured, or the limit of tries is
// reached. The rows contain failures; the error is that of the context.
func (r *comparer) compare(ctx context.Context, c Case) ([]Row, error) {
	r.listener.begin(c)
	pairs, err := r.pairs(ctx, c)
	if cause := context.Cause(ctx); cause != nil {
		r.listener.end(nil)
		return nil, cause
	}
	if errors.Is(err, bench.ErrData) {
		pairs = nil // the speed of a program that moves wrong data does not count
	}
	rows := summarize(c, pairs, err)
	r.listener.end(rows)
	return rows, nil
}

func (r *comparer) pairs(ctx context.Context, c Case) (all []Pair, err error) {
	ucxOps, err := r.ops(ctx, r.ucx, c)
	if err != nil {
		return nil, err
	}
	oursOps, err := r.ops(ctx, r.ours, c)
	if err != nil {
		return nil, err
	}
	for n := 0; n < r.plan.Rounds*triesPerRound && most(all) < r.plan.Rounds; n++ {
		p, err := r.pair(ctx, c, ucxOps, oursOps, n%2 == 0)
		if err != nil {
			return all, err
		}
		all = append(all, p)
		r.listener.pair(c, all)
	}
	return all, nil
}

// Limits of the operations of a run. The minimum takes no longer than a run even if an operation
// takes 10 us, or, in 100 ms, moves its bytes at 2 GB/s. The maximum fits into the counters of both
// programs.
const (
	trialOps   = 10_000
	trialTime  = 10 * time.Microsecond // of an operation
	trialBytes = 256 << 20
	minOps     = 100
	maxOps     = 1 << 28
)

// ops determines the number of operations for the duration of a run, by a run that does not count.
func (r *comparer) ops(ctx context.Context, s side, c Case) (int, error) {
	trial := max(minOps, int(min(trialOps, r.plan.Time/trialTime)))
	ns, err := s.run(ctx, c, min(trial, trialBytes/c.Size))
	if err != nil {
		return 0, err
	}
	return int(min(maxOps, max(minOps, math.Ceil(float64(r.plan.Time)/ns)))), nil
}

// pair runs both sides, with probes around each run. A loopback uses one CPU, so there are no
// probes.
func (r *comparer) pair(ctx context.Context, c Case, ucxOps, oursOps int, ucxFirst bool) (p Pair, err error) {
	probe := func() error {
		if c.UCX.Loop {
			return nil
		}
		ns, err := r.probe()
		p.ProbesNS = append(p.ProbesNS, ns)
		return err
	}
	first := func() (err error) { p.UCXNS, err = r.ucx.run(ctx, c, ucxOps); return err }
	second := func() (err error) { p.OursNS, err = r.ours.run(ctx, c, oursOps); return err }
	if !ucxFirst {
		first, second = second, first
	}
	for _, step := range []func() error{probe, first, probe, second, probe} {
		if err := step(); err != nil {
			return p, err
		}
	}
	p.Phase = phaseOf(p.ProbesNS, r.plan.Near)
	return p, nil
}
