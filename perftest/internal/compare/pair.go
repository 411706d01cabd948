package compare

import (
	"slices"

	"github.com/gucx/gucx/perftest/internal/stat"
)

// Pair is one run of each side, next to each other in time.
type Pair struct {
	UCXNS  float64 `json:"ucx_ns"`  // for one operation
	OursNS float64 `json:"ours_ns"` // likewise
	// ProbeNS is the longest hand-over of a cache line before, between and after;
	// 0 where only one processor takes part.
	ProbeNS float64 `json:"probe_ns"`
}

func (p Pair) ucx() float64   { return p.UCXNS }
func (p Pair) ours() float64  { return p.OursNS }
func (p Pair) probe() float64 { return p.ProbeNS }

// spread is how much longer than the best one of its side a near run may take: more
// means that the processors were moved between two probes, or that others took them.
const spread = 1.35

// keep returns the pairs that count, and how many were dropped because the
// processors were far apart, and because one of the runs is beyond the spread.
func keep(all []Pair, nearNS float64) (kept []Pair, far, slow int) {
	near := slices.DeleteFunc(slices.Clone(all), func(p Pair) bool { return p.ProbeNS > nearNS })
	if len(near) == 0 {
		return nil, len(all), 0
	}
	ucx, ours := spread*slices.Min(values(near, Pair.ucx)), spread*slices.Min(values(near, Pair.ours))
	far = len(all) - len(near)
	kept = slices.DeleteFunc(near, func(p Pair) bool { return p.UCXNS > ucx || p.OursNS > ours })
	return kept, far, len(all) - far - len(kept)
}

func values(pairs []Pair, of func(Pair) float64) []float64 {
	v := make([]float64, len(pairs))
	for i, p := range pairs {
		v[i] = of(p)
	}
	return v
}

// Figure is the median of runs with their range, in the unit of a metric.
type Figure struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Summary is what the pairs of a case come to.
type Summary struct {
	Case   Case
	UCX    Figure
	Ours   Figure
	Ratio  float64 // median of ours over median of UCX; 0 if no pair counts
	Probe  Figure  // of the pairs that count, ns
	Kept   int
	Far    int // pairs dropped because of the probe
	Slow   int // pairs dropped because of the spread
	Pairs  []Pair
	Failed error // why there are no more pairs
}

// Reached reports whether the ratio meets the goal.
func (s *Summary) Reached() bool { return s.Kept > 0 && s.Case.Metric.reached(s.Ratio, s.Case.Goal) }

// summarize condenses pairs.
func summarize(c Case, all []Pair, nearNS float64, failed error) Summary {
	s := Summary{Case: c, Pairs: all, Failed: failed}
	var kept []Pair
	kept, s.Far, s.Slow = keep(all, nearNS)
	if s.Kept = len(kept); s.Kept == 0 {
		return s
	}
	ucx, ours := values(kept, Pair.ucx), values(kept, Pair.ours)
	s.UCX, s.Ours = c.figure(ucx), c.figure(ours)
	s.Probe = figure(values(kept, Pair.probe))
	s.Ratio = c.Metric.ratio(stat.Median(ours), stat.Median(ucx))
	return s
}

// figure converts nanoseconds for one operation.
func (c Case) figure(ns []float64) Figure {
	v := make([]float64, len(ns))
	for i := range ns {
		v[i] = c.Metric.value(ns[i], c.Size)
	}
	return figure(v)
}

func figure(v []float64) Figure {
	return Figure{Median: stat.Median(v), Min: slices.Min(v), Max: slices.Max(v)}
}
