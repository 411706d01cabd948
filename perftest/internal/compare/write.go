package compare

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/gucx/gucx/perftest/internal/result"
)

// Conditions are those of all comparisons of a run.
type Conditions struct {
	Machine result.Machine `json:"machine"`
	Commit  string         `json:"commit"`
	UCX     string         `json:"ucx"` // version
	CPUs    []int          `json:"cpus"`
	Rounds  int            `json:"rounds"`
	RunNS   int64          `json:"run_ns"`
	NearNS  float64        `json:"near_ns"`
	Spread  float64        `json:"spread"`
}

// write writes the results in one of the forms of package report.
func write(w io.Writer, format string, c Conditions, results []Summary) error {
	switch format {
	case "json":
		return writeJSON(w, c, results)
	case "csv":
		return writeCSV(w, results)
	}
	if _, err := fmt.Fprintf(w, "%s\n\n", heading(c)); err != nil {
		return err
	}
	t := build(c, results)
	if format == "md" {
		_, err := fmt.Fprintln(w, t.RenderMarkdown())
		return err
	}
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	style.Options.SeparateColumns = false
	style.Options.DrawBorder = false
	t.SetStyle(style)
	_, err := fmt.Fprintln(w, t.Render())
	return err
}

// heading tells under which conditions the numbers were taken.
func heading(c Conditions) string {
	m := c.Machine
	return fmt.Sprintf("%s, %d cores, Linux %s, %s %s; gucx %s, UCX %s; processors %v\n"+
		"medians [min..max] of %d pairs of runs of %.0f ms, probes at most %.0f ns, runs within %.2fx of the best",
		m.CPU, m.Cores, m.Kernel, m.Go, m.Arch, c.Commit, c.UCX, c.CPUs,
		c.Rounds, float64(c.RunNS)/1e6, c.NearNS, c.Spread)
}

// build makes the table for people.
func build(c Conditions, results []Summary) table.Writer {
	t := table.NewWriter()
	t.AppendHeader(table.Row{"Comparison", "UCX " + c.UCX, "gucx", "Ratio", "Goal", "Reached", "Pairs", "Far", "Slow", "Probe ns"})
	var right []table.ColumnConfig
	for _, n := range []int{2, 3, 4, 5, 7, 8, 9, 10} {
		right = append(right, table.ColumnConfig{Number: n, Align: text.AlignRight})
	}
	t.SetColumnConfigs(right)
	for i := range results {
		t.AppendRow(row(&results[i]))
	}
	return t
}

func row(s *Summary) table.Row {
	m, goal := s.Case.Metric, s.Case.Metric.goalText(s.Case.Goal)
	if s.Kept == 0 {
		reached := "no near pair"
		if s.Failed != nil {
			reached = "failed"
		}
		return table.Row{s.Case, "-", "-", "-", goal, reached, 0, s.Far, s.Slow, "-"}
	}
	return table.Row{s.Case, s.UCX.text(m), s.Ours.text(m), fmt.Sprintf("%.2f", s.Ratio), goal,
		yesNo(s.Reached()), s.Kept, s.Far, s.Slow, fmt.Sprintf("%.0f", s.Probe.Median)}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// text shows a figure with its unit.
func (f Figure) text(m Metric) string {
	by, unit := m.scale(f.Median)
	return fmt.Sprintf("%s %s [%s..%s]", digits(f.Median/by), unit, digits(f.Min/by), digits(f.Max/by))
}

// record is a comparison as JSON has it.
type record struct {
	Name    string  `json:"name"`
	Test    string  `json:"test"`
	Size    int     `json:"size"`
	Layout  string  `json:"layout"`
	Unit    Metric  `json:"unit"`
	UCX     Figure  `json:"ucx"`
	Ours    Figure  `json:"ours"`
	Ratio   float64 `json:"ratio"`
	Goal    float64 `json:"goal"`
	Reached bool    `json:"reached"`
	Probe   Figure  `json:"probe_ns"`
	Kept    int     `json:"kept"`
	Far     int     `json:"far"`
	Slow    int     `json:"slow"`
	Pairs   []Pair  `json:"pairs"`
	Error   string  `json:"error,omitempty"`
}

func recordOf(s *Summary) record {
	r := record{Name: s.Case.Name, Test: s.Case.Test, Size: s.Case.Size, Layout: s.Case.Layout,
		Unit: s.Case.Metric, UCX: s.UCX, Ours: s.Ours, Ratio: s.Ratio, Goal: s.Case.Goal,
		Reached: s.Reached(), Probe: s.Probe, Kept: s.Kept, Far: s.Far, Slow: s.Slow, Pairs: s.Pairs}
	if s.Failed != nil {
		r.Error = s.Failed.Error()
	}
	return r
}

// writeJSON writes one object on each line: the conditions, then the comparisons
// with every pair of runs, also those that do not count.
func writeJSON(w io.Writer, c Conditions, results []Summary) error {
	e := json.NewEncoder(w)
	if err := e.Encode(c); err != nil {
		return err
	}
	for i := range results {
		if err := e.Encode(recordOf(&results[i])); err != nil {
			return err
		}
	}
	return nil
}

// writeCSV writes one line for each comparison.
func writeCSV(w io.Writer, results []Summary) error {
	t := table.NewWriter()
	t.AppendHeader(table.Row{"name", "test", "size", "layout", "unit", "ucx", "ucx_min", "ucx_max",
		"ours", "ours_min", "ours_max", "ratio", "goal", "reached", "kept", "far", "slow", "probe_ns", "error"})
	for i := range results {
		r := recordOf(&results[i])
		t.AppendRow(table.Row{r.Name, r.Test, r.Size, r.Layout, r.Unit.Unit(),
			plain(r.UCX.Median), plain(r.UCX.Min), plain(r.UCX.Max),
			plain(r.Ours.Median), plain(r.Ours.Min), plain(r.Ours.Max),
			plain(r.Ratio), plain(r.Goal), r.Reached, r.Kept, r.Far, r.Slow, plain(r.Probe.Median), r.Error})
	}
	_, err := fmt.Fprintln(w, t.RenderCSV())
	return err
}

// plain prints a number for machines.
func plain(v float64) string { return fmt.Sprintf("%.4f", v) }

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
