package kv

import (
	"fmt"

	"github.com/gucx/gucx/perftest/internal/show/sheet"
)

const legend = "p50, p99: of all operations. CPU: time of the server processes for an operation. " +
	"Rate / Redis, per CPU / Redis: the rate, and the number of operations in a second of CPU time of the servers, divided by those of Redis."

// Sheet returns the rows to write.
func Sheet(head any, lines []string, rows []Row) *sheet.Sheet[Row] {
	return &sheet.Sheet[Row]{Head: head, Lines: lines, Legend: legend, Rows: rows, Columns: columns,
		Group: func(r Row) string { return fmt.Sprint(r.Workload, r.Clients) }}
}

var columns = []sheet.Column[Row]{
	{Name: "workload", Title: "Workload", Value: func(r Row) any { return r.Workload }},
	{Name: "clients", Title: "Clients", Value: func(r Row) any { return r.Clients }},
	{Name: "store", Title: "Store", Value: func(r Row) any { return r.Store }},
	{Name: "ops_per_s", Title: "ops/s", Value: func(r Row) any { return r.Rate }, Text: func(v any) string { return fmt.Sprintf("%.0f", v) }},
	{Name: "p50_ns", Title: "p50 ns", Value: func(r Row) any { return r.P50 }, Text: nanoseconds},
	{Name: "p99_ns", Title: "p99 ns", Value: func(r Row) any { return r.P99 }, Text: nanoseconds},
	{Name: "server_cpu_ns", Title: "CPU ns", Value: func(r Row) any { return r.CPU }, Text: func(v any) string { return sheet.Nanoseconds(v.(float64)) }},
	{Name: "rate_over_redis", Title: "Rate / Redis", Value: func(r Row) any { return r.RateRatio }, Text: ratio, Rank: 1},
	{Name: "rate_per_cpu_over_redis", Title: "per CPU / Redis", Value: func(r Row) any { return r.CPURatio }, Text: ratio, Rank: 1},
}

func nanoseconds(v any) string { return sheet.Nanoseconds(float64(v.(int64))) }

// ratio prints nothing for an unknown ratio.
func ratio(v any) string {
	if v.(float64) == 0 {
		return ""
	}
	return sheet.Short(v)
}
