package report

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/gucx/gucx/perftest/internal/result"
)

// writeCSV writes one line for each record, with the names of the JSON fields.
func writeCSV(w io.Writer, _ result.Run, records []result.Record) error {
	t := table.NewWriter()
	t.AppendHeader(table.Row{
		"layer", "transport", "fabric", "test", "size", "variant", "window", "ops",
		"p50_ns", "p99_ns", "max_ns", "post_ns", "post_p99_ns", "flush_ns", "flush_p99_ns", "loop_ns", "loop_cost_ns",
		"msg_per_s", "mib_per_s", "over", "over_ns", "over_pct",
	})
	for _, r := range records {
		t.AppendRow(table.Row{
			r.Layer, r.Transport, r.Fabric, r.Test, r.Size, r.Variant, r.Window, r.Ops,
			plain(r.P50NS), plain(r.P99NS), plain(r.MaxNS), plain(r.PostNS), plain(r.PostP99NS),
			plain(r.FlushNS), plain(r.FlushP99NS), plain(r.LoopNS), plain(r.LoopCostNS),
			plain(r.MsgPerS), plain(r.MiBPerS), r.Over, plain(r.OverNS), plain(r.OverPct),
		})
	}
	_, err := fmt.Fprintln(w, t.RenderCSV())
	return err
}

// plain prints a number for machines.
func plain(v float64) string { return fmt.Sprintf("%.3f", v) }
