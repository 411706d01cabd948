package report

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/gucx/gucx/perftest/internal/measure/result"
)

// writeCSV writes one line for each record. The columns have the names of the JSON fields.
func writeCSV(w io.Writer, run result.Run, records []result.Record) error {
	t := table.NewWriter()
	var events []string
	if run.Counters != nil {
		events = countedEvents(records)
	}
	t.AppendHeader(append(table.Row{
		"layer", "transport", "fabric", "test", "size", "variant", "window", "ops",
		"p50_ns", "p99_ns", "p999_ns", "max_ns", "rank_ns", "post_ns", "post_p99_ns", "flush_ns", "flush_p99_ns", "loop_ns", "loop_cost_ns",
		"msg_per_s", "mib_per_s", "over", "over_ns", "over_pct", "over_lo_ns", "over_hi_ns",
	}, counterNames(events)...))
	for _, r := range records {
		t.AppendRow(append(table.Row{
			r.Layer, r.Transport, r.Fabric, r.Test, r.Size, r.Variant, r.Window, r.Ops,
			plain(r.P50NS), plain(r.P99NS), plain(r.P999NS), plain(r.MaxNS), plain(r.RankNS), plain(r.PostNS), plain(r.PostP99NS),
			plain(r.FlushNS), plain(r.FlushP99NS), plain(r.LoopNS), plain(r.LoopCostNS),
			plain(r.MsgPerS), plain(r.MiBPerS), r.Over, plain(r.OverNS), plain(r.OverPct), plain(r.OverLoNS), plain(r.OverHiNS),
		}, counterCells(events, r.Counters)...))
	}
	_, err := fmt.Fprintln(w, t.RenderCSV())
	return err
}

// counterNames returns the columns of counters, none without events: caller_syscalls,
// caller_switches, ..., caller_calls, rest_syscalls, ....
func counterNames(events []string) (names table.Row) {
	if len(events) == 0 {
		return nil
	}
	names = table.Row{"counted_ops"}
	for _, who := range []string{callerThread, restThreads, targetProc} {
		for _, e := range events {
			names = append(names, who+"_"+e)
		}
		names = append(names, who+"_calls")
	}
	return names
}

// counterCells returns the values of these columns; empty if an event was not counted.
func counterCells(events []string, c *result.Counters) (cells table.Row) {
	if len(events) == 0 {
		return nil
	}
	if c == nil {
		c = &result.Counters{}
	}
	target := c.Target
	if target == nil {
		target = &result.Usage{}
	}
	cells = table.Row{c.Ops}
	for _, u := range []*result.Usage{&c.Caller, &c.Rest, target} {
		for _, e := range events {
			cells = append(cells, plainIf(u.Events, e))
		}
		cells = append(cells, callsText(u.Calls, len(u.Calls)))
	}
	return cells
}

// plainIf formats an optional number like plain.
func plainIf(m map[string]float64, key string) string {
	v, ok := m[key]
	if !ok {
		return ""
	}
	return plain(v)
}

// plain formats a number for programs.
func plain(v float64) string { return fmt.Sprintf("%.3f", v) }
