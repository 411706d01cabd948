package threads

import (
	"strconv"

	"github.com/gucx/gucx/perftest/internal/show/sheet"
)

const legend = "Mean: the time, in ns or with its unit, in which all threads together do an operation, or the one thread of the row; of messages there and back half of that. " +
	"Slowest, Fastest: million operations each second of single threads."

// Sheet returns the rows to write; those of single threads only if each is set.
func Sheet(head any, lines []string, rows []Row, each bool) *sheet.Sheet[Row] {
	s := &sheet.Sheet[Row]{Head: head, Lines: lines, Legend: legend,
		Group: func(r Row) string { return r.Test + strconv.Itoa(r.Size) },
		Columns: []sheet.Column[Row]{
			{Name: "test", Title: "Test", Value: func(r Row) any { return r.Test }},
			{Name: "size", Title: "Bytes", Value: func(r Row) any { return r.Size }},
			{Name: "mode", Title: "Mode", Value: func(r Row) any { return string(r.Mode) }},
			{Name: "threads", Title: "Threads", Value: func(r Row) any { return r.Threads }},
			{Name: "thread", Title: "Thread", Value: func(r Row) any { return r.thread() }, Right: true},
			figure("ns", "Mean", 0, sheet.Nanoseconds, func(r Row) float64 { return r.NS }),
			figure("msg_per_s", "M msg/s", 0, millions, func(r Row) float64 { return r.Rate }),
			figure("mib_per_s", "MiB/s", 0, formatWhole, func(r Row) float64 { return r.MiB }),
			figure("slowest_msg_per_s", "Slowest", 1, millions, func(r Row) float64 { return r.Slowest }),
			figure("fastest_msg_per_s", "Fastest", 1, millions, func(r Row) float64 { return r.Fastest }),
		}}
	for _, r := range rows {
		if each || r.Thread == All {
			s.Rows = append(s.Rows, r)
		}
	}
	return s
}

// thread returns the name of a thread, or of all.
func (r Row) thread() string {
	if r.Thread == All {
		return "all"
	}
	return strconv.Itoa(r.Thread)
}

func millions(v float64) string    { return sheet.Millions(v) }
func formatWhole(v float64) string { return sheet.Decimals(v, 0) }

func figure(name, title string, rank int, text func(float64) string, value func(Row) float64) sheet.Column[Row] {
	return sheet.Column[Row]{Name: name, Title: title, Rank: rank, Right: true,
		Value: func(r Row) any { return value(r) },
		Text:  func(v any) string { return text(v.(float64)) }}
}
