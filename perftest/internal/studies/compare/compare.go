package compare

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/gucx/gucx/perftest/internal/measure/bench"
)

// side is one of the programs.
type side interface {
	// run measures about ops operations and returns nanoseconds for one.
	run(ctx context.Context, c Case, ops int) (ns float64, err error)
}

// plan says how to compare.
type plan struct {
	Rounds int           // pairs of one phase
	Time   time.Duration // of one run
	Near   float64       // longest probe of near processors, ns
}

// triesPerRound bounds how many pairs are run for each that must count.
const triesPerRound = 3

// listener is told how the comparison goes on. Its methods must not take long.
type listener interface {
	begin(c Case)
	pair(c Case, all []Pair)
	end(rows []Row)
}

// comparer runs cases.
type comparer struct {
	plan      plan
	ucx, ours side
	// probe measures the hand-over of a cache line between the processors, in
	// nanoseconds one way.
	probe func() (float64, error)
	told  listener
}

// compare runs pairs until enough of one phase are there, or it has tried often
// enough. The rows say what failed; the error is that of the context.
func (r *comparer) compare(ctx context.Context, c Case) ([]Row, error) {
	r.told.begin(c)
	pairs, err := r.pairs(ctx, c)
	if cause := context.Cause(ctx); cause != nil {
		r.told.end(nil)
		return nil, cause
	}
	if errors.Is(err, bench.ErrData) {
		pairs = nil // what moves wrong data is not fast
	}
	rows := summarize(c, pairs, err)
	r.told.end(rows)
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
		r.told.pair(c, all)
	}
	return all, nil
}

// Limits of the operations of a run. So few for a start that they take no longer
// than a run should even where each takes 10 us, or, in 100 ms, moves its bytes at 2 GB/s;
// and so many as fit into the counters of both programs.
const (
	trialOps   = 10_000
	trialTime  = 10 * time.Microsecond // of an operation
	trialBytes = 256 << 20
	minOps     = 100
	maxOps     = 1 << 28
)

// ops finds out how many operations take as long as a run should, by a run that
// does not count.
func (r *comparer) ops(ctx context.Context, s side, c Case) (int, error) {
	trial := max(minOps, int(min(trialOps, r.plan.Time/trialTime)))
	ns, err := s.run(ctx, c, min(trial, trialBytes/c.Size))
	if err != nil {
		return 0, err
	}
	return int(min(maxOps, max(minOps, math.Ceil(float64(r.plan.Time)/ns)))), nil
}

// pair runs both sides, with probes around each run. In loopback one processor takes
// part, and there is nothing to probe.
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
