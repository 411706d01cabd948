package compare

import (
	"context"
	"fmt"
	"math"
	"time"
)

// side is one of the programs.
type side interface {
	// run measures about ops operations and returns nanoseconds for one.
	run(ctx context.Context, c Case, ops int) (ns float64, err error)
}

// plan says how to compare.
type plan struct {
	Rounds int           // pairs that must count
	Time   time.Duration // of one run
}

// triesPerRound bounds how many pairs are run for each that must count.
const triesPerRound = 3

// comparer runs cases.
type comparer struct {
	plan      plan
	ucx, ours side
	phase     *phase
	// step is told of each run that is over.
	step func(c Case, kept int, p Pair)
}

// compare runs pairs until enough of them count, or it has tried often enough.
// The summary says what failed; the error is that of the context.
func (r *comparer) compare(ctx context.Context, c Case) (Summary, error) {
	pairs, err := r.pairs(ctx, c)
	if cause := context.Cause(ctx); cause != nil {
		return Summary{}, cause
	}
	return summarize(c, pairs, r.phase.near(), err), nil
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
	for n := range r.plan.Rounds * triesPerRound {
		p, err := r.pair(ctx, c, ucxOps, oursOps, n%2 == 0)
		if err != nil {
			return all, err
		}
		all = append(all, p)
		kept, _, _ := keep(all, r.phase.near())
		r.step(c, len(kept), p)
		if len(kept) == r.plan.Rounds {
			break
		}
	}
	return all, nil
}

// Limits of the operations of a run. So few for a start that they take no longer
// than a run should even where each takes 10 us, or moves its bytes at 2 GB/s; and
// so many as fit into the counters of both programs.
const (
	trialOps   = 10_000
	trialBytes = 256 << 20
	minOps     = 100
	maxOps     = 1 << 28
)

// ops finds out how many operations take as long as a run should, by a run that
// does not count.
func (r *comparer) ops(ctx context.Context, s side, c Case) (int, error) {
	ns, err := s.run(ctx, c, min(trialOps, trialBytes/c.Size))
	if err != nil {
		return 0, err
	}
	return int(min(maxOps, max(minOps, math.Ceil(float64(r.plan.Time)/ns)))), nil
}

// pair runs both sides, with probes around each run. In loopback one processor takes
// part, and there is nothing to probe.
func (r *comparer) pair(ctx context.Context, c Case, ucxOps, oursOps int, ucxFirst bool) (p Pair, err error) {
	probe := func() error { return nil }
	if !c.UCX.Loop {
		if p.ProbeNS, err = r.phase.await(ctx); err != nil {
			return p, err
		}
		probe = func() error {
			ns, err := r.phase.look()
			p.ProbeNS = max(p.ProbeNS, ns)
			return err
		}
	}
	runs := []func() error{
		func() (err error) { p.UCXNS, err = r.ucx.run(ctx, c, ucxOps); return err },
		probe,
		func() (err error) { p.OursNS, err = r.ours.run(ctx, c, oursOps); return err },
		probe,
	}
	if !ucxFirst {
		runs[0], runs[2] = runs[2], runs[0]
	}
	for _, run := range runs {
		if err := run(); err != nil {
			return p, fmt.Errorf("%s: %w", c, err)
		}
	}
	return p, nil
}
