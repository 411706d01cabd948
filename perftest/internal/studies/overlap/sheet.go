package overlap

import (
	"fmt"
	"time"

	"github.com/gucx/gucx/perftest/internal/show/sheet"
)

const legend = "Base: time of an iteration with negligible work. Iteration: time with work, which is doubled until an iteration takes more than twice as long. " +
	"Work: the same without the message. Overhead: iteration - work. Availability: 1 - overhead / base, the share of the time that remains for the program."

const legendReal = " Program: CPU time, per iteration, of the thread that computes and calls. Device: CPU time of the other " +
	"threads of the process, which belong to the device in software and the Go runtime; a real device would not use it. On a machine with fewer CPUs than " +
	"these threads the device uses the CPU of the program."

// Sheet returns the rows to write; with CPU times if the rows are of real time.
func Sheet(head any, lines []string, rows []Row, real bool) *sheet.Sheet[Row] {
	s := &sheet.Sheet[Row]{Head: head, Lines: lines, Legend: legend, Rows: rows,
		Group: func(r Row) string { return string(r.Side) + r.Protocol }}
	s.Columns = []sheet.Column[Row]{
		{Name: "side", Title: "Side", Value: func(r Row) any { return string(r.Side) }},
		{Name: "protocol", Title: "Protocol", Value: func(r Row) any { return r.Protocol }},
		{Name: "size", Title: "Size", Value: func(r Row) any { return r.Size }},
		{Name: "availability", Title: "Available", Value: func(r Row) any { return r.Availability }, Text: sheet.Percent},
		micros("overhead_us", "Overhead us", func(r Row) time.Duration { return r.Overhead }),
		micros("base_us", "Base us", func(r Row) time.Duration { return r.Base }),
		ranked(3, micros("iteration_us", "Iteration us", func(r Row) time.Duration { return r.Iteration })),
		ranked(2, micros("work_us", "Work us", func(r Row) time.Duration { return r.Work })),
	}
	if real {
		s.Legend += legendReal
		s.Columns = append(s.Columns,
			ranked(1, micros("program_us", "Program us", func(r Row) time.Duration { return r.Program })),
			ranked(1, micros("device_us", "Device us", func(r Row) time.Duration { return r.Process - r.Program })))
	}
	return s
}

// ranked returns c with a rank.
func ranked(rank int, c sheet.Column[Row]) sheet.Column[Row] {
	c.Rank = rank
	return c
}

func micros(name, title string, value func(Row) time.Duration) sheet.Column[Row] {
	return sheet.Column[Row]{Name: name, Title: title, Text: func(v any) string { return fmt.Sprintf("%.2f", v) },
		Value: func(r Row) any { return float64(value(r).Nanoseconds()) / 1000 }}
}
