package instr

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/gucx/gucx/perftest/internal/show/sheet"
)

// style selects how tables are drawn.
type style uint8

const (
	plainText style = iota
	markdown
)

// writeTables writes one table for each operation, size and alternative: a row for each part, a column for each API,
// and below the sum the difference between each API and the one before it. The device is below the sum: with hardware
// it needs no instructions.
func writeTables(w io.Writer, m *Measurement, st style) error {
	for _, line := range m.Lines() {
		if _, err := fmt.Fprintf(w, "%s\n\n", line); err != nil {
			return err
		}
	}
	for i, g := range groups(m.Results) {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if err := g.write(w, st); err != nil {
			return err
		}
	}
	return nil
}

// tableGroup is the results of one table.
type tableGroup struct {
	title   string
	columns []Result
}

// groups splits results into tables. A result with a switch is a column beside the default of its API.
func groups(results []Result) (all []tableGroup) {
	for _, r := range results {
		title := r.Case.Op.String()
		if r.Case.Size > 0 {
			title += fmt.Sprintf(", %d B", r.Case.Size)
		}
		if n := len(all); n == 0 || all[n-1].title != title {
			all = append(all, tableGroup{title: title})
		}
		g := &all[len(all)-1]
		g.columns = append(g.columns, r)
	}
	return all
}

// header returns the name of a column: "ucp" or "ucp resolve".
func header(c Case) string { return strings.TrimSpace(c.API.String() + " " + c.Switch) }

func (g tableGroup) write(w io.Writer, st style) error {
	if st == markdown {
		if _, err := fmt.Fprintln(w, g.build(" ", 0).RenderMarkdown()); err != nil {
			return err
		}
		return g.reasons(w, func(text string) string { return text })
	}
	width := sheet.Width(w)
	body := g.build("\n", 0).Render()
	if over := sheet.TextWidth(body) - width; over > 0 {
		body = g.build("\n", max(g.longestName()-over, leastName)).Render()
	}
	if _, err := fmt.Fprintln(w, body); err != nil {
		return err
	}
	return g.reasons(w, func(text string) string { return sheet.Wrap(text, width) })
}

// leastName is the minimum width of function names in a table that is too wide.
const leastName = 16

// longestName returns the width of the column of names.
func (g tableGroup) longestName() (n int) {
	for part := range harness {
		for _, row := range g.rows(part) {
			n = max(n, sheet.TextWidth(fmt.Sprint(row[0])))
		}
	}
	return n
}

// keepEnd shortens a name from the front.
func keepEnd(name string, limit int) string {
	if runes := []rune(name); len(runes) > limit {
		return "…" + string(runes[len(runes)-limit+1:])
	}
	return name
}

// build returns the table. sep is the separator between the API and the alternative in a header; names are at most
// limit characters, if limit is not 0.
func (g tableGroup) build(sep string, limit int) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header, t.Style().Format.Footer = text.FormatDefault, text.FormatDefault
	head := table.Row{g.title}
	configs := []table.ColumnConfig{{Number: 1, WidthMax: limit, WidthMaxEnforcer: keepEnd}}
	for i, r := range g.columns {
		head = append(head, strings.ReplaceAll(header(r.Case), " ", sep))
		configs = append(configs, table.ColumnConfig{
			Number: i + 2, Align: text.AlignRight, AlignHeader: text.AlignRight, AlignFooter: text.AlignRight,
		})
	}
	t.AppendHeader(head)
	t.SetColumnConfigs(configs)
	for part := int(harness) - 1; part > int(Device); part-- {
		t.AppendRows(g.rows(Part(part)))
	}
	t.AppendSeparator()
	t.AppendRow(g.cells("total", func(r Result) string { return strconv.Itoa(r.Sample.Total()) }))
	if row, any := g.added(); any {
		t.AppendRow(row)
	}
	t.AppendRows(g.spread())
	if rows := g.rows(Device); len(rows) > 0 {
		t.AppendSeparator()
		t.AppendRows(rows)
		t.AppendRow(g.cells("with device", func(r Result) string {
			return strconv.Itoa(r.Sample.Profile.WithDevice())
		}))
	}
	return t
}

// cells returns a row with one text for each column that has a result.
func (g tableGroup) cells(name string, cell func(Result) string) table.Row {
	row := table.Row{name}
	for _, r := range g.columns {
		s := ""
		if r.Skip == "" {
			s = cell(r)
		}
		row = append(row, s)
	}
	return row
}

// rows returns the rows of a part, and of its functions and lines if they are counted; none for a part that executed
// nothing.
func (g tableGroup) rows(p Part) []table.Row {
	executed := func(r Result) bool { return r.Sample.Profile.Part(p) > 0 }
	if !slices.ContainsFunc(g.columns, executed) {
		return nil
	}
	rows := []table.Row{g.cells(p.String(), func(r Result) string {
		return blankZero(r.Sample.Profile.Part(p))
	})}
	for _, at := range g.places(p) {
		rows = append(rows, g.cells("  "+at.String(), func(r Result) string {
			return blankZero(r.Sample.Profile[at])
		}))
	}
	return rows
}

// places returns the functions or lines of a part in all columns, by their largest count.
func (g tableGroup) places(p Part) []Place {
	largest := map[Place]int{}
	for _, r := range g.columns {
		for at, n := range r.Sample.Profile {
			if at.Part == p && at.Function != "" {
				largest[at] = max(largest[at], n)
			}
		}
	}
	all := make([]Place, 0, len(largest))
	for at := range largest {
		all = append(all, at)
	}
	slices.SortFunc(all, func(a, b Place) int {
		return cmp.Or(cmp.Compare(largest[b], largest[a]), cmp.Compare(a.String(), b.String()))
	})
	return all
}

// String is the function, with the line if that is known.
func (p Place) String() string { return strings.TrimSpace(p.Function + " " + p.Line) }

func blankZero(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// added returns the difference between each API and the one below it, between averbs and verbs, and between each
// alternative and its default.
func (g tableGroup) added() (row table.Row, any bool) {
	row = table.Row{"added"}
	for _, r := range g.columns {
		s := ""
		if base, ok := g.below(r.Case); ok && r.Skip == "" {
			s, any = fmt.Sprintf("%+d", r.Sample.Total()-base.Sample.Total()), true
		}
		row = append(row, s)
	}
	return row, any
}

// below returns the index of the case with which a case is compared.
func (g tableGroup) below(c Case) (Result, bool) {
	want := Case{Op: c.Op, API: c.API, Size: c.Size}
	switch {
	case c.API == AVerbs, c.API == UCT && c.Switch == "":
		want.API = Verbs
	case c.Switch == "":
		want.API--
	}
	i := slices.IndexFunc(g.columns, func(r Result) bool { return r.Case == want && r.Skip == "" })
	if i < 0 {
		return Result{}, false
	}
	return g.columns[i], true
}

// spread returns the minimum and maximum numbers of instructions if repetitions differed; nothing if none did.
func (g tableGroup) spread() []table.Row {
	differed := false
	bound := func(name string, of func(Sample) int) table.Row {
		return g.cells(name, func(r Result) string {
			if r.Sample.Exact() {
				return ""
			}
			differed = true
			return strconv.Itoa(of(r.Sample))
		})
	}
	rows := []table.Row{
		bound("least", func(s Sample) int { return s.Min }),
		bound("most", func(s Sample) int { return s.Max }),
	}
	if !differed {
		return nil
	}
	return rows
}

// reasons explains empty columns.
func (g tableGroup) reasons(w io.Writer, wrap func(string) string) error {
	for _, r := range g.columns {
		if r.Skip == "" {
			continue
		}
		if _, err := fmt.Fprintln(w, wrap(fmt.Sprintf("%s: not counted: %s", header(r.Case), r.Skip))); err != nil {
			return err
		}
	}
	return nil
}
