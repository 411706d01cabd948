package compare

import (
	"context"
	"math"
	"time"
)

// phase tells whether the two processors are near each other now.
type phase struct {
	// probe measures the hand-over of a cache line between them, in nanoseconds one
	// way.
	probe func() (float64, error)
	// limit is the largest probe of near processors; 0 to take nearFactor times the
	// best one seen.
	limit float64
	best  float64 // 0 before the first probe
}

const (
	// nearFactor separates placements: processors that share a third-level cache
	// were seen at 48 to 60 ns and others from 165 ns on (AMD EPYC, family 26); on an
	// Intel Xeon (model 143) near ones are at 55 to 95 ns.
	nearFactor = 2

	nearLooks = 20 // before a pair that is then dropped
	nearPause = 50 * time.Millisecond
)

// look probes once.
func (p *phase) look() (ns float64, err error) {
	if ns, err = p.probe(); err != nil {
		return 0, err
	}
	if p.best == 0 || ns < p.best {
		p.best = ns
	}
	return ns, nil
}

// near is the largest probe of near processors as far as is known.
func (p *phase) near() float64 {
	switch {
	case p.limit > 0:
		return p.limit
	case p.best > 0:
		return nearFactor * p.best
	}
	return math.Inf(1)
}

// learn probes as often as await does, so that the best is known before it counts.
func (p *phase) learn(ctx context.Context) error {
	_, err := p.until(ctx, func(float64) bool { return false })
	return err
}

// await probes until the processors are near, at most nearLooks times, and returns
// the last value.
func (p *phase) await(ctx context.Context) (ns float64, err error) {
	return p.until(ctx, func(ns float64) bool { return ns <= p.near() })
}

func (p *phase) until(ctx context.Context, done func(float64) bool) (ns float64, err error) {
	t := time.NewTicker(nearPause)
	defer t.Stop()
	for range nearLooks {
		if ns, err = p.look(); err != nil || done(ns) {
			return ns, err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return ns, context.Cause(ctx)
		}
	}
	return ns, nil
}
