// Package sheet writes rows of values as a table, Markdown, CSV or JSON.
package sheet

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Column is a value of a row.
type Column[R any] struct {
	Name  string           // name in CSV: that of the field in JSON; empty: only in tables
	Title string           // title in a table; empty: only in CSV
	Value func(R) any      // in CSV
	Text  func(any) string // in a table; nil prints the value
	// Rank is the order in which columns are omitted from a table that is too wide for its
	// terminal: the highest first, the last of equal ones first, and 0 never.
	Rank int
	// Fold breaks texts that are longer than the room that other columns leave.
	Fold bool
	// Right aligns texts to the right, like numbers.
	Right bool
}

// Sheet is a table to write. JSON is one object per line: Head, then the rows.
type Sheet[R any] struct {
	Head    any      // conditions, for JSON
	Lines   []string // conditions, for people; above a table
	Legend  string   // below a table
	Columns []Column[R]
	Rows    []R
	// Group starts a new block of the table when it changes; nil for one block.
	Group func(R) string
	// Alone: the program writes the table in no other format.
	Alone bool
}

// Formats lists the formats of Write; the first is the default.
func Formats() []string { return []string{"table", "md", "csv", "json"} }

// CheckFormat returns an error for an unknown format.
func CheckFormat(name string) error {
	if !slices.Contains(Formats(), name) {
		return fmt.Errorf("unknown output format %q; there are %s", name, strings.Join(Formats(), ", "))
	}
	return nil
}

// Write writes the sheet in a format.
func (s *Sheet[R]) Write(w io.Writer, format string) error {
	switch format {
	case "table":
		return s.drawn(w, Width(w))
	case "md":
		return s.framed(w, s.table(s.titled(), true).RenderMarkdown(), func(text string) string { return text })
	case "csv":
		_, err := fmt.Fprintln(w, s.plain().RenderCSV())
		return err
	case "json":
		return s.json(w)
	}
	return CheckFormat(format)
}

// framed writes body between the lines above and the legend. It wraps both.
func (s *Sheet[R]) framed(w io.Writer, body string, wrap func(string) string) error {
	for _, l := range s.Lines {
		if _, err := fmt.Fprintln(w, wrap(l)); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(w, "\n%s\n", body); err != nil || s.Legend == "" {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", wrap(s.Legend))
	return err
}

// drawn writes the table for a terminal of a width. Columns that do not fit are omitted, and listed
// below.
func (s *Sheet[R]) drawn(w io.Writer, width int) error {
	wrap := func(text string) string { return Wrap(text, width) }
	columns := s.titled()
	body := s.fold(columns, width)
	for TextWidth(body) > width {
		fewer := withoutHighest(columns)
		if len(fewer) == len(columns) {
			break
		}
		columns = fewer
		body = s.fold(columns, width)
	}
	framed := *s
	if left := s.omitted(columns); left != "" {
		framed.Legend = strings.TrimPrefix(s.Legend+"\n"+left, "\n")
	}
	return framed.framed(w, body, wrap)
}

// titled returns the columns of tables.
func (s *Sheet[R]) titled() []Column[R] {
	return slices.DeleteFunc(slices.Clone(s.Columns), func(c Column[R]) bool { return c.Title == "" })
}

// omitted lists the columns that are not shown.
func (s *Sheet[R]) omitted(shown []Column[R]) string {
	if len(shown) == len(s.titled()) {
		return ""
	}
	var names []string
	for _, c := range s.titled() {
		if !slices.ContainsFunc(shown, func(o Column[R]) bool { return o.Name == c.Name && o.Title == c.Title }) {
			names = append(names, c.Title)
		}
	}
	left := "Left out, for the width of the terminal: " + strings.Join(names, ", ") + "."
	if s.Alone {
		return left
	}
	return left + " -o csv and json have all."
}

// withoutHighest omits the last column with the highest rank; none with rank 0.
func withoutHighest[R any](columns []Column[R]) []Column[R] {
	at := -1
	for i, c := range columns {
		if c.Rank > 0 && (at < 0 || c.Rank >= columns[at].Rank) {
			at = i
		}
	}
	if at < 0 {
		return columns
	}
	return slices.Delete(slices.Clone(columns), at, at+1)
}

// leastFold is the minimum width of a column whose texts are folded.
const leastFold = 24

// fold draws the table. A column that may be folded gets the remaining room, if there is enough.
func (s *Sheet[R]) fold(columns []Column[R], width int) string {
	body := Draw(s.table(columns, false), width)
	over := TextWidth(body) - width
	i := slices.IndexFunc(columns, func(c Column[R]) bool { return c.Fold })
	if over <= 0 || i < 0 {
		return body
	}
	longest := 0
	for _, r := range s.Rows {
		longest = max(longest, TextWidth(fmt.Sprint(columns[i].Value(r))))
	}
	room := longest - over
	if room < leastFold {
		return body
	}
	narrower := slices.Clone(columns)
	value := narrower[i].Value
	narrower[i].Value = func(r R) any { return Wrap(fmt.Sprint(value(r)), room) }
	return Draw(s.table(narrower, false), width)
}

// Draw draws a table for a terminal, with space between columns if it fits.
func Draw(t table.Writer, width int) string {
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	style.Options.SeparateColumns = false
	style.Options.DrawBorder = false
	t.SetStyle(style)
	body := t.Render()
	if TextWidth(body) <= width {
		return body
	}
	style.Box.PaddingRight = ""
	t.SetStyle(style)
	return t.Render()
}

// table returns the titles and the texts; without lines between groups if flat.
func (s *Sheet[R]) table(columns []Column[R], flat bool) table.Writer {
	t := table.NewWriter()
	var titles table.Row
	var configs []table.ColumnConfig
	for i, c := range columns {
		titles = append(titles, c.Title)
		align := text.AlignRight
		if len(s.Rows) > 0 {
			if _, name := c.Value(s.Rows[0]).(string); name && !c.Right {
				align = text.AlignLeft
			}
		}
		configs = append(configs, table.ColumnConfig{Number: i + 1, Align: align, AlignHeader: align})
	}
	t.AppendHeader(titles)
	t.SetColumnConfigs(configs)
	for i, r := range s.Rows {
		if !flat && s.Group != nil && i > 0 && s.Group(r) != s.Group(s.Rows[i-1]) {
			t.AppendSeparator()
		}
		t.AppendRow(cells(columns, r))
	}
	return t
}

func cells[R any](columns []Column[R], r R) (row table.Row) {
	for _, c := range columns {
		v := c.Value(r)
		if c.Text != nil {
			v = c.Text(v)
		}
		row = append(row, v)
	}
	return row
}

// plain returns names and values.
func (s *Sheet[R]) plain() table.Writer {
	t := table.NewWriter()
	columns := slices.DeleteFunc(slices.Clone(s.Columns), func(c Column[R]) bool { return c.Name == "" })
	var names table.Row
	for _, c := range columns {
		names = append(names, c.Name)
	}
	t.AppendHeader(names)
	for _, r := range s.Rows {
		var row table.Row
		for _, c := range columns {
			row = append(row, c.Value(r))
		}
		t.AppendRow(row)
	}
	return t
}

func (s *Sheet[R]) json(w io.Writer) error {
	e := json.NewEncoder(w)
	if err := e.Encode(s.Head); err != nil {
		return err
	}
	for _, r := range s.Rows {
		if err := e.Encode(r); err != nil {
			return err
		}
	}
	return nil
}
