package compare

import (
	"fmt"
	"io"

	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
)

// Conditions are the conditions of all comparisons of a run.
type Conditions struct {
	Machine result.Machine `json:"machine"`
	Commit  string         `json:"commit"`
	UCX     string         `json:"ucx"` // version
	CPUs    []int          `json:"cpus"`
	Rounds  int            `json:"rounds"`
	RunNS   int64          `json:"run_ns"`
	// NearNS is the maximum probe of near CPUs, and Agreement the maximum ratio between the probes
	// of a pair that counts.
	NearNS    float64 `json:"near_ns"`
	Agreement float64 `json:"agreement"`
	result.Partial
}

const legend = "Times are one way for ping-pongs. Ratio: ours divided by UCX's, the median of pairs; for times a small one is good, for rates " +
	"and bandwidths a large one. Best: the ratio of the best run of each side. Probe: the time to exchange a cache line between the " +
	"two CPUs. near: they share a cache; far: they do not; one: both sides use the same CPU; " +
	"moved: the probes of no pair agreed, so its runs may have been in different phases. " +
	"Pairs: those in the row, and all pairs that ran."

// write writes the results in one of the forms of package sheet.
func write(w io.Writer, format string, c Conditions, rows []Row) error {
	s := sheet.Sheet[record]{Head: c, Lines: heading(c), Legend: legend, Columns: columns,
		Group: func(r record) string { return r.Name }}
	for i := range rows {
		s.Rows = append(s.Rows, recordOf(&rows[i]))
	}
	return s.Write(w, format)
}

// heading describes the conditions.
func heading(c Conditions) []string {
	return append([]string{
		fmt.Sprintf("%s; gucx %s, UCX %s; CPUs %v", c.Machine, c.Commit, c.UCX, c.CPUs),
		fmt.Sprintf("%d pairs of runs of %.0f ms; near: probes of %.0f ns at most; probes of a pair agree within %.1fx",
			c.Rounds, float64(c.RunNS)/1e6, c.NearNS, c.Agreement),
	}, c.Lines()...)
}

// record is a row in JSON.
type record struct {
	Name    string  `json:"name"` // transport, or cma
	Test    string  `json:"test"`
	Size    int     `json:"size"`
	Layout  string  `json:"layout"`
	Phase   Phase   `json:"phase"`
	Unit    Metric  `json:"unit"`
	UCX     Figure  `json:"ucx"`
	Ours    Figure  `json:"ours"`
	Ratio   Figure  `json:"ratio"`
	Best    float64 `json:"best_ratio"`
	Goal    float64 `json:"goal"`
	Reached bool    `json:"reached"`
	Probe   Figure  `json:"probe_ns"`
	Pairs   []Pair  `json:"pairs"`
	// Moved is the number of pairs of the case that do not count, in its first row.
	Moved []Pair `json:"moved,omitempty"`
	Error string `json:"error,omitempty"`

	row *Row
}

func recordOf(r *Row) record {
	out := record{Name: r.Case.Name, Test: r.Case.Test, Size: r.Case.Size, Layout: r.Case.Layout, Phase: r.Phase,
		Unit: r.Case.Metric, UCX: r.UCX, Ours: r.Ours, Ratio: r.Ratio, Best: r.Best, Goal: r.Case.Goal,
		Reached: r.Reached(), Probe: r.Probe, Pairs: r.Pairs, Moved: r.Moved, row: r}
	if r.Failed != nil {
		out.Error = r.Failed.Error()
	}
	return out
}

// columns of tables and CSV.
var columns = []sheet.Column[record]{
	{Name: "name", Value: func(r record) any { return r.Name }},
	{Name: "test", Value: func(r record) any { return r.Test }},
	{Name: "size", Value: func(r record) any { return r.Size }},
	{Name: "layout", Value: func(r record) any { return r.Layout }},
	{Title: "Comparison", Value: func(r record) any { return r.row.Case.String() }},
	{Name: "phase", Title: "Phase", Value: func(r record) any { return r.row.phaseText() }},
	{Title: "Probe", Right: true, Rank: 2, Value: func(r record) any { return r.row.shown(fmt.Sprintf("%.0f ns", r.Probe.Median)) }},
	{Name: "unit", Value: func(r record) any { return r.Unit.Unit() }},
	{Title: "UCX", Right: true, Value: func(r record) any { return r.row.shown(r.UCX.median(r.Unit)) }},
	{Title: "UCX range", Right: true, Rank: 4, Value: func(r record) any { return r.row.shown(r.UCX.limits(r.Unit)) }},
	{Title: "gucx", Right: true, Value: func(r record) any { return r.row.shown(r.Ours.median(r.Unit)) }},
	{Title: "gucx range", Right: true, Rank: 4, Value: func(r record) any { return r.row.shown(r.Ours.limits(r.Unit)) }},
	number("ucx", func(r record) float64 { return r.UCX.Median }),
	number("ucx_min", func(r record) float64 { return r.UCX.Min }),
	number("ucx_max", func(r record) float64 { return r.UCX.Max }),
	number("ours", func(r record) float64 { return r.Ours.Median }),
	number("ours_min", func(r record) float64 { return r.Ours.Min }),
	number("ours_max", func(r record) float64 { return r.Ours.Max }),
	number("ratio", func(r record) float64 { return r.Ratio.Median }),
	number("ratio_min", func(r record) float64 { return r.Ratio.Min }),
	number("ratio_max", func(r record) float64 { return r.Ratio.Max }),
	number("best_ratio", func(r record) float64 { return r.Best }),
	number("goal", func(r record) float64 { return r.Goal }),
	{Name: "reached", Value: func(r record) any { return r.Reached }},
	number("probe_ns", func(r record) float64 { return r.Probe.Median }),
	{Title: "Ratio", Right: true, Value: func(r record) any { return r.row.shown(fmt.Sprintf("%.2f", r.Ratio.Median)) }},
	{Title: "Ratio range", Right: true, Rank: 3, Value: func(r record) any { return r.row.shown(fmt.Sprintf("%.2f..%.2f", r.Ratio.Min, r.Ratio.Max)) }},
	{Title: "Best", Right: true, Value: func(r record) any { return r.row.shown(fmt.Sprintf("%.2f", r.Best)) }},
	{Title: "Goal", Right: true, Value: func(r record) any { return r.Unit.goalText(r.Goal) }},
	{Title: "Met", Rank: 1, Value: func(r record) any { return r.row.reachedText() }},
	{Title: "Pairs", Right: true, Rank: 1, Value: func(r record) any { return fmt.Sprintf("%d/%d", len(r.Pairs), len(r.Pairs)+len(r.Moved)) }},
	{Name: "pairs", Value: func(r record) any { return len(r.Pairs) }},
	{Name: "moved", Value: func(r record) any { return len(r.Moved) }},
	{Name: "error", Value: func(r record) any { return r.Error }},
}

// number is a column of CSV.
func number(name string, of func(record) float64) sheet.Column[record] {
	return sheet.Column[record]{Name: name, Value: func(r record) any { return fmt.Sprintf("%.4f", of(r)) }}
}

// shown formats a value of a row that has values.
func (r *Row) shown(figure string) string {
	if len(r.Pairs) == 0 {
		return "-"
	}
	return figure
}

// phaseText returns the phase, or that there is none.
func (r *Row) phaseText() string {
	if len(r.Pairs) == 0 {
		return "failed"
	}
	return string(r.Phase)
}

// reachedText returns whether the goal is reached, if that is known.
func (r *Row) reachedText() string {
	switch {
	case len(r.Pairs) == 0 || r.Phase == Moved:
		return "-"
	case r.Reached():
		return "yes"
	}
	return "no"
}

// median formats the median with its unit.
func (f Figure) median(m Metric) string {
	by, unit := m.scale(f.Median)
	return digits(f.Median/by) + " " + unit
}

// limits formats the range in the unit of the median.
func (f Figure) limits(m Metric) string {
	by, _ := m.scale(f.Median)
	return digits(f.Min/by) + ".." + digits(f.Max/by)
}

// writeList writes the names of comparisons with their goals.
func writeList(w io.Writer, cases []Case) error {
	for _, c := range cases {
		if _, err := fmt.Fprintf(w, "%-24s  %-6s %-5s  ratio of %s %s\n", c, c.UCX.Test, c.UCX.Transport,
			c.Metric.Unit(), c.Metric.goalText(c.Goal)); err != nil {
			return err
		}
	}
	return nil
}
