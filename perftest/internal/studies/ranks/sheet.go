package ranks

import (
	"fmt"

	"github.com/gucx/gucx/perftest/internal/show/sheet"
)

const legend = "Times in microseconds are for one round; for pingpong, ring, bw, bibw and mbw_mr for one message, by the clock of rank 0. Mean, least and most are of the ranks, of each rank's mean over rounds. " +
	"Best is the fastest round of any rank. Bytes are those of a message, or of the part of one rank. A barrier that is not timed precedes each round."

const behindLegend = " Protocols take turns; +% is how much longer the best round took than that of the fastest protocol."

// Sheet returns the rows to write.
func Sheet(head any, lines []string, rows []Row) *sheet.Sheet[Row] {
	s := &sheet.Sheet[Row]{Head: head, Lines: lines, Legend: legend, Rows: rows,
		Group: func(r Row) string { return r.Test },
		Columns: []sheet.Column[Row]{
			{Name: "test", Title: "Test", Value: func(r Row) any { return r.Test }},
			{Name: "size", Title: "Bytes", Value: func(r Row) any { return r.Size }},
			{Name: "ranks", Title: "Ranks", Value: func(r Row) any { return r.Ranks }},
			{Name: "protocol", Value: func(r Row) any { return r.Protocol }},
			microseconds("mean_ns", "Mean", 0, func(r Row) float64 { return r.MeanNS }),
			microseconds("least_ns", "Least", 1, func(r Row) float64 { return r.LeastNS }),
			microseconds("most_ns", "Most", 1, func(r Row) float64 { return r.MostNS }),
			microseconds("best_ns", "Best", 0, func(r Row) float64 { return r.BestNS }),
		}}
	if quickest := quickest(rows); len(quickest) < len(rows) {
		s.Legend += behindLegend
		s.Group = func(r Row) string { return fmt.Sprint(r.Test, r.Size) }
		s.Columns[3].Title = "Protocol"
		s.Columns = append(s.Columns, sheet.Column[Row]{Title: "+%", Right: true,
			Value: func(r Row) any { return 100 * (r.BestNS/quickest[r.cell()] - 1) },
			Text:  func(v any) string { return fmt.Sprintf("%.0f", v) }})
	}
	return s
}

// cell is a test at a size.
type cell struct {
	test string
	size int
}

func (r *Row) cell() cell { return cell{r.Test, r.Size} }

// quickest returns the best round of any protocol, in nanoseconds.
func quickest(rows []Row) map[cell]float64 {
	least := map[cell]float64{}
	for i := range rows {
		r := &rows[i]
		if v, ok := least[r.cell()]; !ok || r.BestNS < v {
			least[r.cell()] = r.BestNS
		}
	}
	return least
}

// microseconds is a column of times; in CSV they are nanoseconds.
func microseconds(name, title string, rank int, value func(Row) float64) sheet.Column[Row] {
	return sheet.Column[Row]{Name: name, Title: title + " us", Rank: rank, Right: true,
		Value: func(r Row) any { return value(r) },
		Text:  func(v any) string { return fmt.Sprintf("%.2f", v.(float64)/1000) }}
}
