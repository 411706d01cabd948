// Package report writes results as a table, Markdown, CSV or JSON, and draws them.
//
// JSON is one object per line: first result.Run, then each result.Record with layer,
// transport, fabric, test, size (bytes), p50_ns, p99_ns, post_ns, flush_ns, msg_per_s and
// mib_per_s (2^20 bytes). Beyond those it has variant, window, ops, max_ns, post_p99_ns,
// flush_p99_ns, loop_ns and loop_cost_ns; and over, over_ns and over_pct where they are not empty.
// CSV has a column of the same name for each of them. With counters the run and the
// records have one field more, counters, and CSV a column for each thread group and
// event: caller_syscalls. The run has a field incomplete, and the heading of a table a line, where
// not all is there that was asked for; CSV has no place for that.
package report

import (
	"encoding/json"
	"io"

	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
)

// writers by name of the format.
var writers = map[string]func(io.Writer, result.Run, []result.Record) error{
	"table": writeTable,
	"md":    writeMarkdown,
	"csv":   writeCSV,
	"json":  writeJSON,
}

// Write writes the results in a format, one of sheet.Formats.
func Write(w io.Writer, format string, run result.Run, records []result.Record) error {
	if err := sheet.CheckFormat(format); err != nil {
		return err
	}
	return writers[format](w, run, records)
}

// writeJSON writes one object per line: the run, then the records.
func writeJSON(w io.Writer, run result.Run, records []result.Record) error {
	e := json.NewEncoder(w)
	if err := e.Encode(run); err != nil {
		return err
	}
	for _, r := range records {
		if err := e.Encode(r); err != nil {
			return err
		}
	}
	return nil
}
