package ranks

import (
	"fmt"

	"github.com/gucx/gucx/perftest/internal/show/sheet"
)

const legend = "Microseconds of one round, and for pingpong and ring of one message of it, by the clock of rank 0: the mean of each rank's rounds, then the mean, " +
	"the least and the most of the ranks. Bytes are those of a message, or of a rank's part. Before each round is a barrier that is not counted."

// Sheet is rows to write.
func Sheet(head any, lines []string, rows []Row) *sheet.Sheet[Row] {
	return &sheet.Sheet[Row]{Head: head, Lines: lines, Legend: legend, Rows: rows,
		Group: func(r Row) string { return r.Test },
		Columns: []sheet.Column[Row]{
			{Name: "test", Title: "Test", Value: func(r Row) any { return r.Test }},
			{Name: "size", Title: "Bytes", Value: func(r Row) any { return r.Size }},
			{Name: "ranks", Title: "Ranks", Value: func(r Row) any { return r.Ranks }},
			microseconds("mean_ns", "Mean", func(r Row) float64 { return r.MeanNS }),
			microseconds("least_ns", "Least", func(r Row) float64 { return r.LeastNS }),
			microseconds("most_ns", "Most", func(r Row) float64 { return r.MostNS }),
		}}
}

// microseconds is a column of times, which are nanoseconds in CSV.
func microseconds(name, title string, value func(Row) float64) sheet.Column[Row] {
	return sheet.Column[Row]{Name: name, Title: title + " us", Right: true,
		Value: func(r Row) any { return value(r) },
		Text:  func(v any) string { return fmt.Sprintf("%.2f", v.(float64)/1000) }}
}
