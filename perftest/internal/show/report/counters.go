package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
)

// usageRow contains the events of the threads of one kind in one record.
type usageRow struct {
	rec     *result.Record
	threads string
	usage   result.Usage
}

const (
	callerThread = "caller"
	restThreads  = "rest"
	targetProc   = "target"
)

// maxCalls is the maximum number of system calls in a row of a table.
const maxCalls = 4

// eventTitles are the titles of the columns by event.
var eventTitles = map[string]string{
	result.Syscalls: "Syscalls", result.Switches: "Switches", result.Faults: "Faults", result.Transmits: "Xmit",
	result.Receives: "Recv", result.Migrations: "Migrations", result.CPUTime: "CPU ns",
}

const countersLegend = "For one operation; that of a ping-pong goes there and back. caller is the thread that runs the operations, " +
	"rest the other threads of its process (with a target in it), target the target process, which also looks for " +
	"requests of perftest. rest and target are left out where they did nothing. A switch is one away from the thread."

// writeCounters writes a table of its own, below that of the times.
func writeCounters(w io.Writer, format string, run result.Run, records []result.Record) error {
	s := &sheet.Sheet[usageRow]{Lines: sourceLines(run.Counters), Legend: countersLegend, Rows: usageRows(records),
		Group: func(r usageRow) string { return r.rec.Test + " " + strconv.Itoa(r.rec.Size) }}
	s.Columns = []sheet.Column[usageRow]{
		{Title: "Test", Value: func(r usageRow) any { return r.rec.Test }},
		{Title: "Size", Value: func(r usageRow) any { return r.rec.Size }, Text: func(v any) string { return sizeText(v.(int)) }},
		{Title: "Layer", Value: func(r usageRow) any { return r.rec.Layer }},
		{Title: "Threads", Value: func(r usageRow) any { return r.threads }},
	}
	for _, event := range countedEvents(records) {
		s.Columns = append(s.Columns, sheet.Column[usageRow]{Title: eventTitles[event],
			Value: func(r usageRow) any { return eventOf(r.usage, event) }, Text: func(v any) string { return few(v.(float64)) }})
	}
	if slices.Contains(countedEvents(records), result.Syscalls) {
		s.Columns = append(s.Columns, sheet.Column[usageRow]{Title: "Calls", Rank: 1, Fold: true, Value: func(r usageRow) any { return callsText(r.usage.Calls, maxCalls) }})
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return s.Write(w, format)
}

// sourceLines describes the source of the counters, and the reasons why better sources were not
// used.
func sourceLines(c *result.CounterSource) []string {
	lines := []string{"counters by " + c.Name + ", in a pass of its own"}
	for _, why := range c.Refused {
		lines = append(lines, "not by "+why)
	}
	return lines
}

// usageRows returns a row for the caller of each record, and for other threads that had events.
func usageRows(records []result.Record) (rows []usageRow) {
	for i := range records {
		rec := &records[i]
		c := rec.Counters
		if c == nil {
			continue
		}
		rows = append(rows, usageRow{rec, callerThread, c.Caller})
		if didSomething(c.Rest) {
			rows = append(rows, usageRow{rec, restThreads, c.Rest})
		}
		if c.Target != nil && didSomething(*c.Target) {
			rows = append(rows, usageRow{rec, targetProc, *c.Target})
		}
	}
	return rows
}

// leastShown is half of the last digit in a table.
const leastShown = 0.0005

func didSomething(u result.Usage) bool {
	for _, v := range u.Events {
		if v >= leastShown {
			return true
		}
	}
	return false
}

// countedEvents returns the events of all records, in order.
func countedEvents(records []result.Record) (events []string) {
	for _, name := range result.EventNames() {
		if slices.ContainsFunc(records, func(r result.Record) bool { return counts(r.Counters, name) }) {
			events = append(events, name)
		}
	}
	return events
}

func counts(c *result.Counters, event string) bool {
	if c == nil {
		return false
	}
	_, ok := c.Caller.Events[event]
	return ok
}

// eventOf returns the number of an event; NaN if it was not counted.
func eventOf(u result.Usage, name string) float64 {
	if v, ok := u.Events[name]; ok {
		return v
	}
	return math.NaN()
}

// few formats a number with a suitable number of digits, without trailing zeros.
func few(v float64) string {
	switch {
	case math.IsNaN(v):
		return "-"
	case v == 0:
		return "0"
	case v < leastShown:
		return "<0.001"
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	}
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.3f", v), "0"), ".")
}

// callsText lists the most frequent system calls.
func callsText(calls map[string]float64, most int) string {
	names := slices.SortedFunc(maps.Keys(calls), func(a, b string) int {
		return cmp.Or(cmp.Compare(calls[b], calls[a]), cmp.Compare(a, b))
	})
	var all []string
	for _, name := range names[:min(most, len(names))] {
		all = append(all, name+" "+few(calls[name]))
	}
	return strings.Join(all, ", ")
}
