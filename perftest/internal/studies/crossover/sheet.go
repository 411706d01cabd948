package crossover

import (
	"fmt"

	"github.com/gucx/gucx/perftest/internal/show/sheet"
)

const legend = "Times are for one message, half a round trip in ping-pongs, the minimum over rounds. Uses: the protocol of auto by EP.Explain; short, bcopy and zcopy are eager. " +
	"Loss: how much longer auto takes than the best column."

// Sheet returns the rows to write. protocols are the names in the order of the columns, Auto first.
func Sheet(head any, lines, protocols []string, rows []Row) *sheet.Sheet[Row] {
	s := &sheet.Sheet[Row]{Head: head, Lines: lines, Legend: legend, Rows: rows,
		Group: func(r Row) string { return r.Transport + " " + r.Memory + " " + r.Test },
		Columns: []sheet.Column[Row]{
			{Name: "transport", Title: "Over", Value: func(r Row) any { return r.Transport }},
			{Name: "memory", Title: "Memory", Value: func(r Row) any { return r.Memory }},
			{Name: "test", Title: "Test", Value: func(r Row) any { return r.Test }},
			{Name: "size", Title: "Bytes", Value: func(r Row) any { return r.Size }},
			{Name: "uses", Title: "Uses", Value: func(r Row) any { return r.Uses }},
		}}
	for i, p := range protocols {
		rank := 0
		if i > 0 {
			rank = 1
		}
		s.Columns = append(s.Columns, sheet.Column[Row]{Name: p + "_ns", Title: p, Rank: rank, Right: true,
			Value: func(r Row) any { return r.NS[p] }, Text: func(v any) string { return sheet.Nanoseconds(v.(float64)) }})
	}
	s.Columns = append(s.Columns,
		sheet.Column[Row]{Name: "best", Title: "Best", Value: func(r Row) any { return r.Best }},
		sheet.Column[Row]{Name: "loss_pct", Title: "Loss %", Right: true, Value: func(r Row) any { return r.LossPct },
			Text: func(v any) string { return fmt.Sprintf("%.0f", v) }})
	return s
}
