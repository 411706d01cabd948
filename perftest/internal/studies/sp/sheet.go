package sp

import (
	"fmt"

	"github.com/gucx/gucx/perftest/internal/show/sheet"
)

const legend = "Norms of each run equal the published ones (1e-8). Mop/s: operations as the benchmark counts them, of all ranks. " +
	"Then seconds of all steps by what a rank did, the mean of the ranks: right-hand sides, sweeps, eigenvectors, copies into " +
	"and out of messages, in Isend and Irecv, waiting. Messages and MiB are those that a rank sends in a step; " +
	"queued, how many of them went through a queue of TupleQ."

// Sheet returns the rows to write.
func Sheet(head any, lines []string, rows []Row) *sheet.Sheet[Row] {
	return &sheet.Sheet[Row]{Head: head, Lines: lines, Legend: legend, Rows: rows,
		Group: func(r Row) string { return r.Class },
		Columns: []sheet.Column[Row]{
			{Name: "class", Title: "Class", Value: func(r Row) any { return r.Class }},
			{Name: "ranks", Title: "Ranks", Value: func(r Row) any { return r.Ranks }},
			{Name: "protocol", Title: "Protocol", Value: func(r Row) any { return r.Protocol }},
			figure("seconds", "Time s", 0, func(r Row) float64 { return r.Seconds }),
			figure("mops", "Mop/s", 0, func(r Row) float64 { return r.Rate }),
			figure("residual_s", "rhs", 2, func(r Row) float64 { return r.Residual }),
			figure("sweeps_s", "sweeps", 2, func(r Row) float64 { return r.Sweeps }),
			figure("eigenvectors_s", "eigen", 2, func(r Row) float64 { return r.Vectors }),
			figure("copies_s", "copy", 2, func(r Row) float64 { return r.Copies }),
			figure("posting_s", "post", 1, func(r Row) float64 { return r.Posting }),
			figure("waiting_s", "wait", 1, func(r Row) float64 { return r.Waiting }),
			{Name: "messages", Title: "Messages", Rank: 3, Value: func(r Row) any { return r.Messages }},
			figure("mib", "MiB", 3, func(r Row) float64 { return r.MiB }),
			{Name: "queued", Title: "Queued", Rank: 1, Value: func(r Row) any { return r.Queued }, Text: sheet.Percent, Right: true},
		}}
}

// figure is a column of numbers.
func figure(name, title string, rank int, value func(Row) float64) sheet.Column[Row] {
	return sheet.Column[Row]{Name: name, Title: title, Rank: rank, Right: true,
		Value: func(r Row) any { return value(r) },
		Text:  func(v any) string { return digits(v.(float64)) }}
}

// digits formats at least three digits, without an exponent.
func digits(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.4f", v)
}

// Cost is a row of CostSheet.
type Cost struct {
	Work  string  `json:"work"`
	Unit  string  `json:"unit"`
	Nanos float64 `json:"ns"`
	Model float64 `json:"class_a_ns"` // in ClassA
}

const costLegend = "The least of some steps of one rank. Class A: the costs that models take."

// CostSheet returns costs to write, with those of ClassA.
func CostSheet(head any, lines []string, c Costs) *sheet.Sheet[Cost] {
	s := &sheet.Sheet[Cost]{Head: head, Lines: lines, Legend: costLegend, Columns: []sheet.Column[Cost]{
		{Name: "work", Title: "Work", Value: func(r Cost) any { return r.Work }},
		{Name: "unit", Title: "Unit", Value: func(r Cost) any { return r.Unit }},
		{Name: "ns", Title: "ns", Value: func(r Cost) any { return r.Nanos }, Text: sheet.Short, Right: true},
		{Name: "class_a_ns", Title: "Class A", Value: func(r Cost) any { return r.Model }, Text: sheet.Short, Right: true},
	}}
	for w := range Works {
		s.Rows = append(s.Rows, Cost{w.String(), w.Unit(), c[w], ClassA[w]})
	}
	return s
}
