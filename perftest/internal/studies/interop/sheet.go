package interop

import (
	"strconv"

	"github.com/gucx/gucx/perftest/internal/show/sheet"
)

const legend = "Pair: the initiator, which runs the operations and the clock, and the target. Mean: the time of an operation, or of one message of a " +
	"ping-pong, the median over rounds. Ratio: Mean divided by that of UCX-UCX in the same round, the median; below 1 is faster. Range: of all rounds."

// Sheet returns the rows to write.
func Sheet(head any, lines []string, rows []Row) *sheet.Sheet[Row] {
	return &sheet.Sheet[Row]{Head: head, Lines: lines, Legend: legend, Rows: rows,
		Group: func(r Row) string { return r.Test + strconv.Itoa(r.Size) },
		Columns: []sheet.Column[Row]{
			{Name: "test", Title: "Test", Value: func(r Row) any { return r.Test }},
			{Name: "size", Title: "Bytes", Value: func(r Row) any { return r.Size }},
			{Name: "pair", Title: "Pair", Value: func(r Row) any { return r.Pair }},
			figure("ns", "Mean", 0, sheet.Nanoseconds, func(r Row) float64 { return r.NS }),
			figure("msg_per_s", "M msg/s", 2, millions, func(r Row) float64 { return r.Rate }),
			figure("mib_per_s", "MiB/s", 0, formatWhole, func(r Row) float64 { return r.MiB }),
			figure("ratio", "Ratio", 0, ratio, func(r Row) float64 { return r.Ratio }),
			{Title: "Range", Rank: 1, Right: true, Value: func(r Row) any { return ratio(r.Least) + ".." + ratio(r.Most) }},
			{Name: "ratio_min", Value: func(r Row) any { return r.Least }},
			{Name: "ratio_max", Value: func(r Row) any { return r.Most }},
		}}
}

func millions(v float64) string    { return sheet.Millions(v) }
func formatWhole(v float64) string { return sheet.Decimals(v, 0) }
func ratio(v float64) string       { return sheet.Decimals(v, 2) }

func figure(name, title string, rank int, text func(float64) string, value func(Row) float64) sheet.Column[Row] {
	return sheet.Column[Row]{Name: name, Title: title, Rank: rank, Right: true,
		Value: func(r Row) any { return value(r) },
		Text:  func(v any) string { return text(v.(float64)) }}
}
