package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
)

// form is the layout of results for people.
type form struct {
	name string // of the format
	draw func(grid) string
	// fits reports whether a table is narrow enough.
	fits func(grid) bool
	wrap func(text string) string
}

// writeTable writes the results for a terminal.
func writeTable(w io.Writer, run result.Run, records []result.Record) error {
	width := sheet.Width(w)
	draw := func(g grid) string { return sheet.Draw(g.build(), width) }
	return writeGrids(w, run, records, form{
		name: "table",
		draw: draw,
		fits: func(g grid) bool { return sheet.TextWidth(draw(g)) <= width },
		wrap: func(text string) string { return sheet.Wrap(text, width) },
	})
}

// maxColumns is the maximum number of columns of a table in a document.
const maxColumns = 13

// writeMarkdown writes the results for a document. Markdown has one header line, so the names of the columns contain
// the test.
func writeMarkdown(w io.Writer, run result.Run, records []result.Record) error {
	return writeGrids(w, run, records, form{
		name: "md",
		draw: func(g grid) string {
			g.oneHeader = true
			return g.build().RenderMarkdown()
		},
		fits: func(g grid) bool { return g.figures() <= maxColumns },
		wrap: func(text string) string { return text },
	})
}

func writeGrids(w io.Writer, run result.Run, records []result.Record, f form) error {
	parts := []string{f.wrap(heading(run)) + "\n"}
	for _, g := range grids(run.Settings, records, f.fits) {
		parts = append(parts, f.draw(g)+"\n")
	}
	for _, text := range histograms(records, f) {
		parts = append(parts, text+"\n")
	}
	parts = append(parts, f.wrap(legendOf(run.Settings.Layers))+"\n")
	if _, err := io.WriteString(w, strings.Join(parts, "\n")); err != nil {
		return err
	}
	if run.Counters != nil {
		if err := writeCounters(w, f.name, run, records); err != nil {
			return err
		}
	}
	for _, text := range []string{strings.Join(warnings(run, records), "\n"), inWords(records)} {
		if text == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "\n%s\n", f.wrap(text)); err != nil {
			return err
		}
	}
	return nil
}

// heading describes the conditions of the measurement.
func heading(run result.Run) string {
	m, c, s := run.Machine, run.Clock, run.Settings
	lines := []string{
		fmt.Sprintf("%s, GOMAXPROCS %d, GOGC %s", m, m.GOMAXPROCS, m.GOGC),
		fmt.Sprintf("gucx %s; device %s, transport %s%s%s, CPUs %s", run.Commit, s.Device, s.Transport,
			optional(", fabric ", s.Fabric), optional(", variant ", s.Variant), cpuList(s.CPUs)),
		fmt.Sprintf("%d iterations in %d rounds, warm-up %d, window %d; clock %s, resolution %.2f ns, cost %.1f ns (subtracted)",
			s.Iterations, s.Rounds, s.Warmup, s.Window, c.Source, c.ResolutionNS, c.CostNS),
	}
	if m.ProbeNS > 0 {
		lines = append(lines, fmt.Sprintf("the CPUs exchange a cache line in %.0f ns", m.ProbeNS))
	}
	if text := memoryText[s.Memory]; text != "" {
		lines = append(lines, text)
	}
	if s.Wait == "sleep" {
		lines = append(lines, "wait mode sleep: both sides slept between messages, so that times contain wake-ups")
	}
	if s.StopPeer {
		lines = append(lines, "the target process was stopped (SIGSTOP) while the clock ran")
	}
	return strings.Join(append(lines, run.Lines()...), "\n")
}

// memoryText describes the classes of memory in result.Settings that are not the default.
var memoryText = map[string]string{
	"mapped": "memory of the process, registered with the transport",
	"plain":  "memory of the process, which operations of ucp do not name as registered",
}

// optional returns name and value; empty without a value.
func optional(name, value string) string {
	if value == "" {
		return ""
	}
	return name + value
}

// cpuList returns the CPUs of initiator and target, or "not pinned".
func cpuList(cpus []int) string {
	if len(cpus) == 0 {
		return "not pinned"
	}
	return strings.Join(strings.Fields(strings.Trim(fmt.Sprint(cpus), "[]")), ",")
}

const legend = "Times in ns, or with their unit, for one operation; MiB = 2^20 bytes. Post, Flush and Total are medians, p99 and others are of Total.\n" +
	"Total = Post + Flush = until complete at the target; in a ping-pong (am_lat, put_pp) half of that.\n" +
	"Mean: a loop without clock readings, median over rounds.\n" +
	"+ns and +%: what the layer adds to the Mean of the layer above it in the table.\n" +
	"The lines below have the 95 % interval in brackets, and omit differences whose interval contains 0."

// legendOf returns the legend of a table of layers, of which some may be variants of ucp.
func legendOf(layers []string) string {
	if slices.ContainsFunc(layers, isVariant) {
		return legend + "\nThe layers ucp-... are ucp without a remedy of the study of UCX: +ns and +% are what they add to ucp."
	}
	return legend
}

// isVariant reports whether a layer is a variant of another one.
func isVariant(layer string) bool { return strings.Contains(layer, "-") }

// grid is one table: rows are sizes and layers, columns are tests.
type grid struct {
	layers    []string // in the order of rows
	tests     []string
	records   []result.Record
	rank      float64 // selected percentile; 0 for none
	narrow    bool    // p99.9 is omitted
	oneHeader bool
}

// column is a value of a record.
type column struct {
	name  string
	value func(result.Record) string
}

// The tables contain the most important values; CSV and JSON contain all.
var latencyColumns = []column{
	{"Post", func(r result.Record) string { return sheet.Nanoseconds(r.PostNS) }},
	{"Flush", func(r result.Record) string { return sheet.Nanoseconds(r.FlushNS) }},
	{"Total", func(r result.Record) string { return sheet.Nanoseconds(r.P50NS) }},
	{"p99", func(r result.Record) string { return sheet.Nanoseconds(r.P99NS) }},
	{rareName, func(r result.Record) string { return sheet.Nanoseconds(r.P999NS) }},
	{"Mean", func(r result.Record) string { return sheet.Nanoseconds(r.LoopNS) }},
	{"+ns", func(r result.Record) string { return over(r, sheet.Nanoseconds(r.OverNS)) }},
	{"+%", func(r result.Record) string { return over(r, percent(r.OverPct)) }},
}

var rateColumns = []column{
	{"M msg/s", func(r result.Record) string { return sheet.Decimals(r.MsgPerS/1e6, 2) }},
	{"MiB/s", func(r result.Record) string { return sheet.Decimals(r.MiBPerS, 0) }},
	{"+%", func(r result.Record) string { return over(r, percent(r.OverPct)) }},
}

// rareName is the column that tables omit first.
const rareName = "p99.9"

// columns returns the columns of a test. A selected percentile replaces p99.
func (g grid) columns(test string) []column {
	if !isLatency(test, g.records) {
		return rateColumns
	}
	columns := slices.Clone(latencyColumns)
	at := slices.IndexFunc(columns, func(c column) bool { return c.name == "p99" })
	if g.rank > 0 {
		columns[at] = column{fmt.Sprintf("p%v", g.rank), func(r result.Record) string { return sheet.Nanoseconds(r.RankNS) }}
	}
	if g.narrow || g.rank > 0 {
		columns = slices.Delete(columns, at+1, at+2)
	}
	return columns
}

// over formats a difference to the layer below with its sign; empty if there is none below.
func over(r result.Record, difference string) string {
	switch {
	case r.Over == "":
		return ""
	case difference[0] == '-':
		return difference
	}
	return "+" + difference
}

// percent formats percent with a suitable number of digits.
func percent(v float64) string {
	switch a := math.Abs(v); {
	case a < 100:
		return fmt.Sprintf("%.1f", v)
	case a < 1e6:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1e", v)
}

// grids packs the tests of records, in their order, into one table if that fits; otherwise latencies and rates into as
// few separate tables as possible.
func grids(s result.Settings, records []result.Record, fits func(grid) bool) (all []grid) {
	tests := result.Tests(records)
	empty := grid{layers: s.Layers, rank: s.Rank, records: records}
	if whole, ok := empty.with(tests, fits); len(tests) > 0 && ok {
		return []grid{whole}
	}
	for i, t := range tests {
		if i > 0 && isLatency(t, records) == isLatency(tests[i-1], records) {
			last := &all[len(all)-1]
			if wider, ok := empty.with(append(slices.Clone(last.tests), t), fits); ok {
				*last = wider
				continue
			}
		}
		alone, _ := empty.with([]string{t}, fits)
		all = append(all, alone)
	}
	return all
}

// with returns the grid of tests, and whether it fits. If it does not fit, it omits the columns that are omitted first.
func (g grid) with(tests []string, fits func(grid) bool) (grid, bool) {
	g.tests = tests
	if fits(g) {
		return g, true
	}
	g.narrow = true
	return g, fits(g)
}

// figures returns the number of columns without those that identify a row.
func (g grid) figures() (n int) {
	for _, t := range g.tests {
		n += len(g.columns(t))
	}
	return n
}

func isLatency(test string, records []result.Record) bool {
	i := slices.IndexFunc(records, func(r result.Record) bool { return r.Test == test })
	return (&records[i]).Latency()
}

// build returns the table.
func (g grid) build() table.Writer {
	t := table.NewWriter()
	top, names := table.Row{"", ""}, table.Row{"Size", "Layer"}
	configs := []table.ColumnConfig{{Number: 1, Align: text.AlignRight}}
	for _, test := range g.tests {
		for _, c := range g.columns(test) {
			top = append(top, test)
			names = append(names, g.columnName(test, c))
			configs = append(configs, table.ColumnConfig{Number: len(names), Align: text.AlignRight, AlignHeader: text.AlignRight})
		}
	}
	if !g.oneHeader {
		t.AppendHeader(top, table.RowConfig{AutoMerge: true, AutoMergeAlign: text.AlignCenter})
	}
	t.AppendHeader(names)
	t.SetColumnConfigs(configs)
	g.rows(t)
	return t
}

// columnName returns c's name below a header with its test; or, with only one header line, both.
func (g grid) columnName(test string, c column) string {
	if g.oneHeader {
		return test + " " + c.name
	}
	return c.name
}

// rows appends a row for each size and layer, with a line between sizes.
func (g grid) rows(t table.Writer) {
	last := -1
	for _, k := range g.keys() {
		size := sizeText(k.size)
		if k.size == 0 && g.sized() {
			size = "0 B"
		}
		if k.size == last {
			size = ""
		} else if last >= 0 && !g.oneHeader {
			t.AppendSeparator()
		}
		last = k.size
		row := table.Row{size, g.label(k)}
		for _, test := range g.tests {
			row = append(row, g.cells(k, test)...)
		}
		t.AppendRow(row)
	}
}

// sized reports whether rows of no bytes are of tests that can have bytes.
func (g grid) sized() bool {
	return slices.ContainsFunc(g.records, func(r result.Record) bool {
		return r.Size == 0 && r.Test != "flush" && slices.Contains(g.tests, r.Test)
	})
}

// key identifies a row.
type key struct {
	size      int
	transport string
	layer     string
}

// label returns the layer of a row, with its transport if there are several.
func (g grid) label(k key) string {
	if len(result.Transports(g.records)) > 1 {
		return k.transport + " " + k.layer
	}
	return k.layer
}

// keys returns the rows of the grid's tests: sizes ascending, transports in their order, layers from the lowest.
func (g grid) keys() (keys []key) {
	transports := result.Transports(g.records)
	for _, r := range g.records {
		k := key{r.Size, r.Transport, r.Layer}
		if slices.Contains(g.tests, r.Test) && !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	slices.SortStableFunc(keys, func(a, b key) int {
		return cmp.Or(a.size-b.size, slices.Index(transports, a.transport)-slices.Index(transports, b.transport),
			slices.Index(g.layers, a.layer)-slices.Index(g.layers, b.layer))
	})
	return keys
}

// cells returns the values of one row and test; empty if there is no record.
func (g grid) cells(k key, test string) (cells []any) {
	i := slices.IndexFunc(g.records, func(r result.Record) bool {
		return r.Test == test && key{r.Size, r.Transport, r.Layer} == k
	})
	for _, c := range g.columns(test) {
		if i < 0 {
			cells = append(cells, "")
			continue
		}
		cells = append(cells, c.value(g.records[i]))
	}
	return cells
}

// sizeText formats a size in the largest binary unit that divides it.
func sizeText(n int) string {
	switch {
	case n == 0:
		return "-"
	case n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}
