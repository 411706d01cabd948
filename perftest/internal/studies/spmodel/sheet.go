package spmodel

import (
	"fmt"

	"github.com/gucx/gucx/perftest/internal/show/sheet"
)

const legend = "Seconds of all time steps of a class, from the clocks of the model. Compute: what the work of a rank takes, by the costs " +
	"of class A times the factor; rest: calls, copies and waits, the mean of the ranks. Relative: to the first protocol. Messages and MiB are those that a rank " +
	"sends in a step; again: messages that devices sent again for want of a receive, of all ranks in a step."

// Sheet returns the rows to write.
func Sheet(head any, lines []string, rows []Row) *sheet.Sheet[Row] {
	return &sheet.Sheet[Row]{Head: head, Lines: lines, Legend: legend, Rows: rows,
		Group: func(r Row) string { return fmt.Sprint(r.Class, r.Factor) },
		Columns: []sheet.Column[Row]{
			{Name: "class", Title: "Class", Value: func(r Row) any { return r.Class }},
			{Name: "ranks", Title: "Ranks", Value: func(r Row) any { return r.Ranks }},
			{Name: "nodes", Title: "Nodes", Value: func(r Row) any { return r.Nodes }},
			{Name: "factor", Title: "Factor", Value: func(r Row) any { return r.Factor }},
			{Name: "protocol", Title: "Protocol", Value: func(r Row) any { return r.Protocol }},
			seconds("seconds", "Time s", func(r Row) float64 { return r.Seconds }),
			{Name: "relative", Title: "Relative", Value: func(r Row) any { return r.Relative }, Text: sheet.Percent},
			seconds("compute_s", "Compute s", func(r Row) float64 { return r.Compute }),
			seconds("rest_s", "Rest s", func(r Row) float64 { return r.Rest }),
			{Name: "messages", Title: "Messages", Rank: 1, Value: func(r Row) any { return r.Messages }},
			{Name: "mib", Title: "MiB", Rank: 1, Value: func(r Row) any { return r.MiB }, Text: sheet.Short},
			{Name: "again", Title: "Again", Rank: 2, Value: func(r Row) any { return r.NotReady }, Text: sheet.Short},
		}}
}

func seconds(name, title string, value func(Row) float64) sheet.Column[Row] {
	return sheet.Column[Row]{Name: name, Title: title, Value: func(r Row) any { return value(r) },
		Text: func(v any) string { return fmt.Sprintf("%.2f", v) }}
}
