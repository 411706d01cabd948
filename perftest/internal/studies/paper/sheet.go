package paper

import (
	"github.com/gucx/gucx/perftest/internal/show/sheet"
)

// Sheet returns the rows to write.
func Sheet(head any, lines []string, rows []Row) *sheet.Sheet[Row] {
	return &sheet.Sheet[Row]{Head: head, Lines: lines, Columns: columns, Rows: rows,
		Legend: "Ratio: of our value to the paper's. Reasons, notes and commands: --list, or -o page.",
		Group:  func(r Row) string { return r.Paper + r.Figure }}
}

var columns = []sheet.Column[Row]{
	{Name: "paper", Title: "Paper", Rank: 3, Value: func(r Row) any { return r.Paper }},
	{Name: "figure", Title: "Figure", Value: func(r Row) any { return r.Figure }},
	{Name: "case", Title: "Case", Fold: true, Value: func(r Row) any { return r.Case }},
	{Name: "ours", Title: "Ours", Right: true, Value: func(r Row) any { return r.Ours }},
	{Name: "papers", Title: "Paper's", Fold: true, Value: func(r Row) any { return r.Theirs }},
	{Name: "ratio", Title: "Ratio", Value: func(r Row) any { return r.Ratio }, Text: blankZero},
	{Name: "verdict", Title: "Verdict", Value: func(r Row) any { return string(r.Outcome) }},
	{Name: "place", Title: "Place", Rank: 1, Value: func(r Row) any { return r.Place }},
	{Name: "how", Title: "Obtained by", Rank: 2, Value: func(r Row) any { return string(r.How) }},
}

// blankZero omits a ratio that does not exist.
func blankZero(v any) string {
	if v == 0.0 {
		return ""
	}
	return sheet.Short(v)
}
