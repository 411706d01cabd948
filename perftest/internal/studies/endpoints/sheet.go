package endpoints

import (
	"slices"
	"strconv"

	"github.com/gucx/gucx/perftest/internal/show/sheet"
	"github.com/gucx/gucx/perftest/internal/studies/msgrate"
)

const legend = "Wasted: micro-UARs that no thread uses. Memory: of all objects, with the memory of a " +
	"device in software for them, without UAR pages, which are in the NIC."

const legendMeasured = "Relative: to MPI-everywhere with the same number of threads. CPU ns: CPU time of the senders for a message; " +
	"0 if it was not measured. "

// Sheet returns the rows to write; without rates if nothing was measured.
func Sheet(head any, lines []string, rows []Row, measured bool) *sheet.Sheet[Row] {
	s := &sheet.Sheet[Row]{Head: head, Lines: lines, Legend: legend, Rows: rows,
		Group: func(r Row) string { return strconv.Itoa(r.Ranks) + "." + strconv.Itoa(r.Threads) }}
	if len(rows) > 0 && rows[0].Ranks > 0 {
		s.Columns = append(s.Columns, sheet.Column[Row]{Name: "ranks", Title: "Ranks", Value: func(r Row) any { return r.Ranks }})
	}
	s.Columns = append(s.Columns, []sheet.Column[Row]{
		{Name: "threads", Title: "Threads", Value: func(r Row) any { return r.Threads }},
		{Name: "category", Title: "Category", Value: func(r Row) any { return r.Category.String() }},
	}...)
	if measured {
		s.Legend = legendMeasured + legend
		s.Columns = append(s.Columns,
			sheet.Column[Row]{Name: "msg_per_s", Title: "M msg/s", Value: func(r Row) any { return r.Rate }, Text: sheet.Millions},
			sheet.Column[Row]{Name: "relative", Title: "Relative", Value: func(r Row) any { return r.Relative }, Text: sheet.Percent})
		if len(rows) > 0 && rows[0].Puts > 0 {
			s.Columns = append(s.Columns, kindColumns...)
		}
		s.Columns = append(s.Columns, sheet.Column[Row]{Name: "cpu_ns", Title: "CPU ns", Rank: 2, Value: func(r Row) any { return r.CPU }, Text: sheet.Short})
	}
	s.Columns = append(s.Columns, resourceColumns...)
	if measured {
		s.Columns = append(s.Columns, sheet.Column[Row]{Name: "rounds", Value: func(r Row) any { return r.Rounds }})
		if slices.ContainsFunc(rows, func(r Row) bool { return r.Rounds > 1 }) {
			s.Legend += " " + msgrate.SpreadLegend
			s.Columns = append(s.Columns, spreadColumns(rows[0].Puts > 0)...)
		}
	} else { // there is space
		s.Columns = append(s.Columns, memoryColumns...)
	}
	return s
}

// spreadColumns are the columns for several rounds; with that of puts if gets and puts are
// separate.
func spreadColumns(puts bool) []sheet.Column[Row] {
	list := []sheet.Column[Row]{{Name: "spread", Title: "Spread", Rank: 1, Value: func(r Row) any { return r.Spread }, Text: sheet.Percent}}
	if puts {
		list = append(list, sheet.Column[Row]{Name: "puts_spread", Title: "puts Spread", Rank: 4, Value: func(r Row) any { return r.PutsSpread }, Text: sheet.Percent})
	}
	return list
}

// kindColumns are the columns with separate gets and puts.
var kindColumns = []sheet.Column[Row]{
	{Name: "gets_per_s", Title: "M gets/s", Value: func(r Row) any { return r.Gets }, Text: sheet.Millions},
	{Name: "gets_relative", Title: "gets %", Rank: 4, Value: func(r Row) any { return r.GetsRelative }, Text: sheet.Percent},
	{Name: "puts_per_s", Title: "M puts/s", Value: func(r Row) any { return r.Puts }, Text: sheet.Millions},
	{Name: "puts_relative", Title: "puts %", Rank: 4, Value: func(r Row) any { return r.PutsRelative }, Text: sheet.Percent},
}

var resourceColumns = []sheet.Column[Row]{
	{Name: "uuars", Title: "uUARs", Value: func(r Row) any { return r.UUARs }},
	{Name: "uuars_relative", Title: "uUARs %", Rank: 2, Value: func(r Row) any { return r.Share }, Text: sheet.Percent},
	{Name: "uuars_wasted", Title: "Wasted", Rank: 1, Value: func(r Row) any { return r.Wasted }},
	{Name: "uar_pages", Title: "UARs", Rank: 3, Value: func(r Row) any { return r.UARPages }},
	{Name: "contexts", Title: "Contexts", Rank: 3, Value: func(r Row) any { return r.Contexts }},
	{Name: "tds", Title: "TDs", Rank: 3, Value: func(r Row) any { return r.TDs }},
	{Name: "qps", Title: "QPs", Rank: 3, Value: func(r Row) any { return r.QPs }},
	{Name: "cqs", Title: "CQs", Rank: 3, Value: func(r Row) any { return r.CQs }},
	{Name: "memory", Title: "Memory", Rank: 1, Value: func(r Row) any { return r.Memory }, Text: sheet.KiB},
}

var memoryColumns = []sheet.Column[Row]{
	{Name: "memory_contexts", Title: "of Contexts", Rank: 1, Value: func(r Row) any { return r.ContextMemory }, Text: sheet.KiB},
	{Name: "memory_qps", Title: "of QPs", Rank: 1, Value: func(r Row) any { return r.QPMemory }, Text: sheet.KiB},
	{Name: "memory_cqs", Title: "of CQs", Rank: 1, Value: func(r Row) any { return r.CQMemory }, Text: sheet.KiB},
}
