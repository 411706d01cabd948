package footprint

import "github.com/gucx/gucx/perftest/internal/show/sheet"

// Sheet returns the rows to write.
func Sheet(head any, lines []string, rows []Row) *sheet.Sheet[Row] {
	return &sheet.Sheet[Row]{Head: head, Lines: lines, Columns: columns, Rows: rows,
		Legend: "Heap: by how much the Go heap grows. QP bytes, all bytes: of queue pairs and of all verbs objects, by which " +
			"the memory domain grows. Both include what the software HCA keeps.",
		Group: func(r Row) string { return r.Layer + r.Transport }}
}

var columns = []sheet.Column[Row]{
	{Name: "layer", Title: "Layer", Value: func(r Row) any { return r.Layer }},
	{Name: "transport", Title: "Transport", Value: func(r Row) any { return r.Transport }},
	{Name: "connect", Title: "Connect", Value: func(r Row) any { return r.Connect }},
	{Name: "peers", Title: "Peers", Value: func(r Row) any { return r.Peers }},
	{Name: "qps", Title: "QPs", Value: func(r Row) any { return r.QPs }},
	{Name: "heap", Title: "Heap", Value: func(r Row) any { return r.Heap }, Text: sheet.KiB},
	{Name: "qp_bytes", Title: "QP bytes", Value: func(r Row) any { return r.QPBytes }, Text: sheet.KiB},
	{Name: "bytes", Title: "All bytes", Value: func(r Row) any { return r.Bytes }, Text: sheet.KiB},
}
