package compare

import (
	"slices"

	"github.com/gucx/gucx/perftest/internal/measure/stat"
)

// Pair is one run of each side, one directly after the other.
type Pair struct {
	UCXNS  float64 `json:"ucx_ns"`  // per operation
	OursNS float64 `json:"ours_ns"` // per operation
	// ProbesNS are the times in which a cache line moves between the CPUs, before, between and
	// after the runs; empty if only one CPU is used.
	ProbesNS []float64 `json:"probes_ns,omitempty"`
	Phase    Phase     `json:"phase"`
}

func (p Pair) ucx() float64  { return p.UCXNS }
func (p Pair) ours() float64 { return p.OursNS }

func values(pairs []Pair, of func(Pair) float64) []float64 {
	v := make([]float64, len(pairs))
	for i, p := range pairs {
		v[i] = of(p)
	}
	return v
}

// inPhase returns the pairs of a phase, in their order.
func inPhase(all []Pair, phase Phase) (pairs []Pair) {
	for _, p := range all {
		if p.Phase == phase {
			pairs = append(pairs, p)
		}
	}
	return pairs
}

// most returns the number of pairs of the most frequent phase among those that count.
func most(all []Pair) (n int) {
	for _, phase := range phases {
		if phase != Moved {
			n = max(n, len(inPhase(all, phase)))
		}
	}
	return n
}

// Figure is the median of runs with their range, in the unit of a metric.
type Figure struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Row is the result of the pairs of a case in one phase.
type Row struct {
	Case  Case
	Phase Phase
	UCX   Figure
	Ours  Figure
	// Ratio is the median of the ratios of ours to UCX's in each pair.
	Ratio Figure
	// Best is the ratio of the best run of each side: load on the other hardware threads changes it
	// least.
	Best  float64
	Probe Figure // ns
	Pairs []Pair
	// Moved is the number of pairs of the case that do not count, in its first row.
	Moved  []Pair
	Failed error // why there are no more pairs
}

// Reached reports whether the ratio meets the goal. For pairs that do not count it returns no
// result.
func (r *Row) Reached() bool {
	return len(r.Pairs) > 0 && r.Phase != Moved && r.Case.Metric.reached(r.Ratio.Median, r.Case.Goal)
}

// summarize returns a row for each phase with pairs. Pairs whose CPUs were moved have a row only if
// there is no other row. A case without pairs also has a row.
func summarize(c Case, all []Pair, failed error) (rows []Row) {
	for _, phase := range phases {
		pairs := inPhase(all, phase)
		if len(pairs) > 0 && (phase != Moved || len(rows) == 0) {
			rows = append(rows, newRow(c, phase, pairs))
		}
	}
	if len(rows) == 0 {
		rows = []Row{{Case: c}}
	}
	first := &rows[0]
	first.Failed = failed
	if first.Phase != Moved {
		first.Moved = inPhase(all, Moved)
	}
	return rows
}

// newRow summarizes pairs, of which there must be at least one.
func newRow(c Case, phase Phase, pairs []Pair) Row {
	ucx, ours := values(pairs, Pair.ucx), values(pairs, Pair.ours)
	r := Row{Case: c, Phase: phase, Pairs: pairs, UCX: c.figure(ucx), Ours: c.figure(ours),
		Ratio: figure(values(pairs, func(p Pair) float64 { return c.Metric.ratio(p.OursNS, p.UCXNS) })),
		Best:  c.Metric.ratio(slices.Min(ours), slices.Min(ucx))}
	var probes []float64
	for _, p := range pairs {
		probes = append(probes, p.ProbesNS...)
	}
	if len(probes) > 0 {
		r.Probe = figure(probes)
	}
	return r
}

// figure converts nanoseconds per operation.
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
