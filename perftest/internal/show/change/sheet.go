package change

import (
	"fmt"

	"github.com/gucx/gucx/perftest/internal/show/sheet"
)

// Head describes a comparison: the first object of JSON output.
type Head struct {
	A         string   `json:"a"` // file
	B         string   `json:"b"`
	Alpha     float64  `json:"alpha"`
	Threshold float64  `json:"threshold_pct"`
	Samples   string   `json:"samples"` // runs or rounds
	Geomean   float64  `json:"geomean_pct"`
	Unlike    []string `json:"unlike,omitempty"` // different conditions
}

// Sheet returns the sheet of a comparison. titles describe the two files.
func (t *Table) Sheet(h Head, titles [2]string) *sheet.Sheet[Row] {
	h.Samples, h.Geomean = "rounds", t.Geomean()
	if t.OfRuns {
		h.Samples = "runs"
	}
	lines := []string{"A: " + h.A + ", " + titles[0], "B: " + h.B + ", " + titles[1]}
	for _, text := range h.Unlike {
		lines = append(lines, "Not the same: "+text)
	}
	return &sheet.Sheet[Row]{Head: h, Lines: lines, Legend: t.legend(h), Rows: t.Rows, Columns: columns(),
		Group: func(r Row) string { return r.Test + r.Transport }}
}

func columns() []sheet.Column[Row] {
	ns := func(v any) string { return sheet.Nanoseconds(v.(float64)) }
	return []sheet.Column[Row]{
		{Name: "test", Title: "Test", Value: func(r Row) any { return r.Test }},
		{Name: "transport", Title: "Transport", Value: func(r Row) any { return r.Transport }, Rank: 2},
		{Name: "size", Title: "Size", Value: func(r Row) any { return r.Size }},
		{Name: "layer", Title: "Layer", Value: func(r Row) any { return r.Layer }},
		{Name: "variant", Value: func(r Row) any { return r.Variant }},
		{Name: "window", Value: func(r Row) any { return r.Window }},
		{Name: "a_ns", Title: "A ns", Value: func(r Row) any { return r.Before.MedianNS }, Text: ns},
		{Title: "A ±", Value: func(r Row) any { return r.Before.spread() }, Right: true, Rank: 1},
		{Name: "a_lo_ns", Value: func(r Row) any { return r.Before.LoNS }},
		{Name: "a_hi_ns", Value: func(r Row) any { return r.Before.HiNS }},
		{Name: "a_n", Value: func(r Row) any { return r.Before.N }},
		{Name: "b_ns", Title: "B ns", Value: func(r Row) any { return r.After.MedianNS }, Text: ns},
		{Title: "B ±", Value: func(r Row) any { return r.After.spread() }, Right: true, Rank: 1},
		{Name: "b_lo_ns", Value: func(r Row) any { return r.After.LoNS }},
		{Name: "b_hi_ns", Value: func(r Row) any { return r.After.HiNS }},
		{Name: "b_n", Value: func(r Row) any { return r.After.N }},
		{Title: "Change", Value: func(r Row) any { return r.change() }, Right: true},
		{Name: "pct", Value: func(r Row) any { return r.Pct }},
		{Name: "p", Title: "p", Value: func(r Row) any { return r.P }, Text: func(v any) string { return fmt.Sprintf("%.3f", v) }},
		{Title: "n", Value: func(r Row) any { return r.n() }, Right: true, Rank: 3},
		{Name: "slower", Value: func(r Row) any { return r.Slower }},
	}
}

// spread is the larger distance between the median and its bounds, in percent of the median.
func (s Side) spread() string {
	if s.LoNS == 0 && s.HiNS == 0 || s.MedianNS == 0 {
		return "∞"
	}
	return fmt.Sprintf("%.0f%%", 100*max(s.HiNS-s.MedianNS, s.MedianNS-s.LoNS)/s.MedianNS)
}

// change formats Pct, with a mark if the row is slower; ~ if it does not differ.
func (r Row) change() string {
	switch {
	case !r.Differs:
		return "~"
	case r.Slower:
		return fmt.Sprintf("%+.1f%% !", r.Pct)
	}
	return fmt.Sprintf("%+.1f%%", r.Pct)
}

func (r Row) n() string {
	if r.Before.N == r.After.N {
		return fmt.Sprint(r.Before.N)
	}
	return fmt.Sprintf("%d+%d", r.Before.N, r.After.N)
}

func (t *Table) legend(h Head) string {
	text := fmt.Sprintf("Geometric mean of the changes: %+.1f%%.\n", h.Geomean)
	text += "Medians of the Means of " + h.Samples + ", for one operation; ± is the interval of 95 % of the median. p is that of the U test; ~ is a change with p of " +
		fmt.Sprint(h.Alpha) + " or more, ! one of more than " + fmt.Sprint(h.Threshold) + " %.\n"
	if !t.OfRuns {
		text += fmt.Sprintf("Rounds of one run are more alike than runs. For the differences between runs save at least %d of each program, in turns (--save).\n", leastRuns)
	}
	for _, only := range []struct {
		n    int
		file string
	}{{t.OnlyA, "A"}, {t.OnlyB, "B"}} {
		if only.n > 0 {
			text += fmt.Sprintf("Rows of %s alone: %d.\n", only.file, only.n)
		}
	}
	return text[:len(text)-1]
}

// Worst describes how many rows are slower than the threshold permits, and the slowest one; nil for
// none.
func (t *Table) Worst(threshold float64) error {
	rows := t.Slower()
	if len(rows) == 0 {
		return nil
	}
	r := rows[0]
	return &SlowerError{fmt.Sprintf("%d of %d rows are slower by more than %v %%; most %s of %d bytes, %s %s: %.1f %%",
		len(rows), len(t.Rows), threshold, r.Test, r.Size, r.Transport, r.Layer, r.Pct)}
}

// SlowerError is the error if rows are slower than the threshold permits.
type SlowerError struct{ text string }

func (e *SlowerError) Error() string { return e.text }
