package ranksmodel

import (
	"fmt"

	"github.com/gucx/gucx/perftest/internal/show/sheet"
)

const legend = "Time of a round in microseconds of the model's clocks; for pingpong, bw and bibw time of a message. Each rank's time is the mean of its rounds; Mean, Least and Most are over the ranks. " +
	"Change: relative to the first transport. CPI: cycles per counted instruction."

// Sheet returns the rows to write.
func Sheet(head any, lines []string, rows []Row) *sheet.Sheet[Row] {
	return &sheet.Sheet[Row]{Head: head, Lines: lines, Legend: legend, Rows: rows,
		Group: func(r Row) string { return r.Test },
		Columns: []sheet.Column[Row]{
			{Name: "test", Title: "Test", Value: func(r Row) any { return r.Test }},
			{Name: "size", Title: "Bytes", Value: func(r Row) any { return r.Size }},
			{Name: "ranks", Value: func(r Row) any { return r.Ranks }},
			{Name: "nodes", Value: func(r Row) any { return r.Nodes }},
			{Name: "cpi", Title: "CPI", Value: func(r Row) any { return r.CPI }},
			{Name: "transport", Title: "Transport", Value: func(r Row) any { return r.Transport }},
			micro("mean_ns", "Mean", 0, func(r Row) float64 { return r.MeanNS }),
			micro("least_ns", "Least", 1, func(r Row) float64 { return r.LeastNS }),
			micro("most_ns", "Most", 1, func(r Row) float64 { return r.MostNS }),
			{Name: "change", Title: "Change", Right: true, Value: func(r Row) any { return r.Change },
				Text: func(v any) string { return fmt.Sprintf("%+.1f %%", 100*v.(float64)) }},
		}}
}

// micro is a column of times; in CSV they are nanoseconds.
func micro(name, title string, rank int, value func(Row) float64) sheet.Column[Row] {
	return sheet.Column[Row]{Name: name, Title: title + " us", Rank: rank, Right: true, Value: func(r Row) any { return value(r) },
		Text: func(v any) string { return fmt.Sprintf("%.2f", v.(float64)/1000) }}
}
