package kernel

import (
	"fmt"
	"math"

	"github.com/gucx/gucx/perftest/internal/show/sheet"
)

const legend = "Time of an iteration in microseconds, averaged over the ranks: mean of all iterations, median of the turns, and best turn. " +
	"The transports are measured in turns. Change: relative to the first transport, median of the differences of turns, with the 95 % interval in brackets. " +
	"Waiting: share of the time in which a rank waits for messages and sums. Messages, KiB and Sums: of one rank in one iteration."

// Sheet returns the rows to write. about describes the values of their results.
func Sheet(head any, lines []string, about string, rows []Row) *sheet.Sheet[Row] {
	s := &sheet.Sheet[Row]{Head: head, Lines: lines, Legend: legend + " " + about, Rows: rows,
		Columns: []sheet.Column[Row]{
			{Name: "transport", Title: "Transport", Value: func(r Row) any { return r.Transport }},
			{Name: "ranks", Value: func(r Row) any { return r.Ranks }},
			{Name: "iterations", Value: func(r Row) any { return r.Iterations }},
			micro("mean_ns", "Mean us", 0, func(r Row) float64 { return r.MeanNS }),
			micro("median_ns", "Median us", 2, func(r Row) float64 { return r.MedianNS }),
			micro("best_ns", "Best us", 3, func(r Row) float64 { return r.BestNS }),
			{Title: "Change", Right: true, Value: func(r Row) any { return r.changeText() }},
			{Name: "change", Value: func(r Row) any { return r.Change }},
			{Name: "change_low", Value: func(r Row) any { return r.ChangeLow }},
			{Name: "change_high", Value: func(r Row) any { return r.ChangeHigh }},
			{Name: "waiting", Title: "Waiting", Rank: 1, Right: true, Value: func(r Row) any { return r.Waiting }, Text: sheet.Percent},
			number("messages", "Messages", 1, 1, func(r Row) float64 { return r.Messages }),
			number("bytes", "KiB", 1, 1024, func(r Row) float64 { return r.Bytes }),
			number("sums", "Sums", 1, 1, func(r Row) float64 { return r.Sums }),
			{Name: "checked", Value: func(r Row) any { return r.Checked }},
			{Name: "state", Value: func(r Row) any { return fmt.Sprintf("%016x", r.Result.State) }},
		}}
	if len(rows) == 0 {
		return s
	}
	for i, v := range rows[0].Result.Values {
		s.Columns = append(s.Columns, sheet.Column[Row]{Name: v.Name, Value: func(r Row) any { return r.Result.Values[i].Number }})
	}
	return s
}

// ResultLines returns the results of the ranks, which are equal for all transports.
func ResultLines(rows []Row) (lines []string) {
	if len(rows) == 0 {
		return nil
	}
	text := "Result:"
	for _, v := range rows[0].Result.Values {
		text += fmt.Sprintf(" %s %s,", v.Title, shortest(v.Number))
	}
	text += fmt.Sprintf(" state %016x, the same over each transport", rows[0].Result.State)
	if rows[0].Checked {
		text += " and on one rank, bit for bit"
	}
	return []string{text}
}

// shortest formats a number with at most seven digits.
func shortest(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e9 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.7g", v)
}

func (r *Row) changeText() string {
	switch {
	case r.Change == 0 && r.ChangeLow == 0 && r.ChangeHigh == 0:
		return ""
	case r.ChangeLow == 0 && r.ChangeHigh == 0:
		return fmt.Sprintf("%+.1f %%", 100*r.Change)
	}
	return fmt.Sprintf("%+.1f %% [%+.1f, %+.1f]", 100*r.Change, 100*r.ChangeLow, 100*r.ChangeHigh)
}

// micro is a column of times; in CSV they are nanoseconds.
func micro(name, title string, rank int, value func(Row) float64) sheet.Column[Row] {
	return sheet.Column[Row]{Name: name, Title: title, Rank: rank, Right: true, Value: func(r Row) any { return value(r) },
		Text: func(v any) string { return fmt.Sprintf("%.1f", v.(float64)/1000) }}
}

// number is a column of means; a table shows them with units.
func number(name, title string, rank int, unit float64, value func(Row) float64) sheet.Column[Row] {
	return sheet.Column[Row]{Name: name, Title: title, Rank: rank, Right: true, Value: func(r Row) any { return value(r) },
		Text: func(v any) string { return fmt.Sprintf("%.1f", v.(float64)/unit) }}
}
