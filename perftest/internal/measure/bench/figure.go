package bench

import (
	"math"
	"slices"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/measure/stat"
)

// cost is the time of the measuring loop itself, in ticks.
type cost struct {
	post, flush, total float64 // medians of a window
	plain              float64 // of one window of a plain loop
}

// costOps is the number of operations with which the loop is measured in a round: half a
// millisecond for windows of one operation.
const (
	costOps    = 8192
	costRounds = 5
)

// cost measures the loop with an operation that does nothing, once for each window.
func (r *Runner) cost(window int) cost {
	if c, ok := r.costs[window]; ok {
		return c
	}
	windows := max(costOps/window, 10)
	s := newSamples(windows*costRounds, costRounds)
	var op nothing
	whole := make([]float64, costRounds)
	for i := range whole {
		// The operation does nothing and so cannot fail.
		_ = s.batch(&op, pace{windows: windows, window: window, every: 1, samples: windows})
		whole[i] = float64(s.batches[i]) / float64(windows)
	}
	step := r.Clock.Step
	c := cost{
		post:  stat.NewDigest(s.post, step).Percentile(50),
		flush: stat.NewDigest(s.flush, step).Percentile(50),
		total: stat.NewDigest(s.total(), step).Percentile(50),
		plain: stat.Median(whole),
	}
	r.costs[window] = c
	return c
}

// records computes one record for each lane from the samples of a cell.
func (r *Runner) records(t Test, size int, p pace, lanes []*lane) []result.Record {
	var records []result.Record
	c := r.cost(p.window)
	loops := make([][]float64, len(lanes)) // by lane, for each round
	for i, l := range lanes {
		rec := r.record(l, t, p, c)
		rec.Size = size
		loops[i] = r.loops(l.s.batches, t, p, c)
		rec.LoopNS, rec.LeastNS, rec.RoundsNS = stat.Median(loops[i]), slices.Min(loops[i]), rounded(loops[i])
		if rec.LoopNS > 0 {
			rec.MsgPerS = 1e9 / rec.LoopNS
			rec.MiBPerS = rec.MsgPerS * float64(size) / result.MiB
		}
		if i > 0 {
			b := r.Plan.below(lanes[:i], l.name)
			rec.Over = lanes[b].name
			d := stat.Paired(loops[i], loops[b])
			rec.OverNS, rec.OverPct, rec.OverLoNS, rec.OverHiNS = d.Median, d.Percent, d.Lo, d.Hi
		}
		records = append(records, rec)
	}
	return records
}

// below returns the index of the lane with which a layer is compared; it is smaller than that of
// the layer.
func (p *Plan) below(before []*lane, name string) int {
	if p.Below != nil {
		want := p.Below(name)
		if i := slices.IndexFunc(before, func(l *lane) bool { return l.name == want }); i >= 0 {
			return i
		}
	}
	return len(before) - 1
}

// record sets the measured values and the percentiles.
func (r *Runner) record(l *lane, t Test, p pace, c cost) result.Record {
	ns := func(ticks, cost float64) float64 {
		return max(0, ticks-cost) / r.Clock.PerNS / float64(p.window)
	}
	share := t.share()
	step := r.Clock.Step
	post, flush := stat.NewDigest(l.s.post, step), stat.NewDigest(l.s.flush, step)
	total := stat.NewDigest(l.s.total(), step)
	rec := result.Record{
		Layer:      l.name,
		Transport:  l.conn.Transport(),
		Fabric:     r.Plan.Fabric,
		Test:       t.Name,
		Window:     p.window,
		Ops:        p.ops() * r.Plan.Rounds,
		P50NS:      share * ns(total.Percentile(50), c.total),
		P99NS:      share * ns(total.Percentile(99), c.total),
		P999NS:     share * ns(total.Percentile(99.9), c.total),
		MaxNS:      share * ns(total.Max(), c.total),
		PostNS:     ns(post.Percentile(50), c.post),
		PostP99NS:  ns(post.Percentile(99), c.post),
		FlushNS:    ns(flush.Percentile(50), c.flush),
		FlushP99NS: ns(flush.Percentile(99), c.flush),
		LoopCostNS: share * c.plain / r.Clock.PerNS / float64(p.window),
	}
	if r.Plan.Rank > 0 {
		rec.RankNS = share * ns(total.Percentile(r.Plan.Rank), c.total)
	}
	if r.Plan.Histogram {
		for _, b := range total.Bins(func(ticks float64) float64 { return share * ns(ticks, c.total) }) {
			rec.Histogram = append(rec.Histogram, result.Bin{LoNS: b.Lo, HiNS: b.Hi, Count: b.Count})
		}
	}
	if v, ok := l.op.(layer.Varied); ok {
		rec.Variant = v.Variant().String()
	}
	return rec
}

// rounded rounds times to picoseconds.
func rounded(ns []float64) []float64 {
	short := make([]float64, len(ns))
	for i, v := range ns {
		short[i] = math.Round(v*1e3) / 1e3
	}
	return short
}

// loops returns the nanoseconds per operation of the plain loop of each round.
func (r *Runner) loops(whole []uint64, t Test, p pace, c cost) []float64 {
	ns := make([]float64, len(whole))
	for i, ticks := range whole {
		perWindow := float64(ticks)/float64(p.windows) - c.plain
		ns[i] = t.share() * max(0, perWindow) / r.Clock.PerNS / float64(p.window)
	}
	return ns
}
