package msgrate

import (
	"slices"

	"github.com/gucx/gucx/perftest/internal/show/sheet"
)

const legend = "Ways: number of threads that share the object; other objects are not shared unless the object requires it. Relative: " +
	"to the first row with the same object and features. CPU ns: CPU time of the senders per message, which does not depend on other " +
	"processes; 0 in virtual time. Doorbells, BlueFlame copies, CQEs and the device's reads of memory are counted in virtual time, " +
	"per message."

// Sheet returns the points to write.
func Sheet(head any, lines []string, points []Point) *sheet.Sheet[Point] {
	s := &sheet.Sheet[Point]{Head: head, Lines: lines, Legend: legend, Columns: columns, Rows: points,
		Group: func(p Point) string { return string(p.Share) + p.Features }}
	if slices.ContainsFunc(points, func(p Point) bool { return p.Rounds > 1 }) {
		s.Legend += " " + SpreadLegend
		s.Columns = append(slices.Clone(columns),
			sheet.Column[Point]{Name: "spread", Title: "Spread", Rank: 1, Value: func(p Point) any { return p.Spread }, Text: sheet.Percent})
	}
	return s
}

// SpreadLegend explains the columns of Figure.Spread.
const SpreadLegend = "Spread: difference of the fastest and the slowest round, relative to the median."

var columns = []sheet.Column[Point]{
	{Name: "share", Title: "Shared", Value: func(p Point) any { return string(p.Share) }},
	{Name: "features", Title: "Features", Value: func(p Point) any { return p.Features }},
	{Name: "threads", Title: "Threads", Value: func(p Point) any { return p.Threads }},
	{Name: "ways", Title: "Ways", Value: func(p Point) any { return p.Ways }},
	{Name: "msg_per_s", Title: "M msg/s", Value: func(p Point) any { return p.Rate }, Text: sheet.Millions},
	{Name: "relative", Title: "Relative", Value: func(p Point) any { return p.Relative }, Text: sheet.Percent},
	{Name: "cpu_ns", Title: "CPU ns", Rank: 1, Value: func(p Point) any { return p.CPU }, Text: sheet.Short},
	{Name: "contexts", Title: "Contexts", Rank: 5, Value: func(p Point) any { return p.Contexts }},
	{Name: "qps", Title: "QPs", Rank: 3, Value: func(p Point) any { return p.QPs }},
	{Name: "cqs", Title: "CQs", Rank: 3, Value: func(p Point) any { return p.CQs }},
	{Name: "uar_pages", Title: "UARs", Rank: 3, Value: func(p Point) any { return p.UARPages }},
	{Name: "uuars", Title: "uUARs", Rank: 5, Value: func(p Point) any { return p.UUARs }},
	{Name: "uuars_used", Title: "Used", Rank: 4, Value: func(p Point) any { return p.Used }},
	{Name: "memory", Title: "Memory", Rank: 4, Value: func(p Point) any { return p.Memory }, Text: sheet.KiB},
	{Name: "doorbells_per_msg", Title: "Doorbells", Rank: 2, Value: func(p Point) any { return p.Doorbells }, Text: sheet.Short},
	{Name: "blueflames_per_msg", Title: "BlueFlame", Rank: 2, Value: func(p Point) any { return p.BlueFlames }, Text: sheet.Short},
	{Name: "cqes_per_msg", Title: "CQEs", Rank: 2, Value: func(p Point) any { return p.CQEs }, Text: sheet.Short},
	{Name: "dma_reads_per_msg", Title: "Reads", Rank: 3, Value: func(p Point) any { return p.Reads }, Text: sheet.Short},
	{Name: "rounds", Value: func(p Point) any { return p.Rounds }},
}
