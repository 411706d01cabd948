// Package sheet writes rows of figures as a table, Markdown, CSV or JSON.
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

// Column is a figure of a row.
type Column[R any] struct {
	Name  string           // in CSV: the name of the field in JSON
	Title string           // in a table
	Value func(R) any      // in CSV
	Text  func(any) string // in a table; nil prints the value
}

// Sheet is what there is to write. JSON is one object a line: Head, then the rows.
type Sheet[R any] struct {
	Head    any      // conditions, for JSON
	Lines   []string // conditions, for people; above a table
	Legend  string   // below a table
	Columns []Column[R]
	Rows    []R
	// Group begins a new block of the table where it changes; nil for one block.
	Group func(R) string
}

// Formats lists the names that Write takes; the first is the default.
func Formats() []string { return []string{"table", "md", "csv", "json"} }

// CheckFormat refuses a name that Write does not take.
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
		return s.framed(w, s.drawn())
	case "md":
		return s.framed(w, s.table(true).RenderMarkdown())
	case "csv":
		_, err := fmt.Fprintln(w, s.plain().RenderCSV())
		return err
	case "json":
		return s.json(w)
	}
	return CheckFormat(format)
}

func (s *Sheet[R]) framed(w io.Writer, body string) error {
	for _, l := range s.Lines {
		if _, err := fmt.Fprintln(w, l); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(w, "\n%s\n", body); err != nil || s.Legend == "" {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", s.Legend)
	return err
}

func (s *Sheet[R]) drawn() string {
	t := s.table(false)
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	style.Options.SeparateColumns = false
	style.Options.DrawBorder = false
	t.SetStyle(style)
	return t.Render()
}

// table has the titles and the texts; without lines between groups if flat.
func (s *Sheet[R]) table(flat bool) table.Writer {
	t := table.NewWriter()
	var titles table.Row
	var configs []table.ColumnConfig
	for i, c := range s.Columns {
		titles = append(titles, c.Title)
		align := text.AlignRight
		if len(s.Rows) > 0 {
			if _, name := c.Value(s.Rows[0]).(string); name {
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
		t.AppendRow(s.cells(r))
	}
	return t
}

func (s *Sheet[R]) cells(r R) (row table.Row) {
	for _, c := range s.Columns {
		v := c.Value(r)
		if c.Text != nil {
			v = c.Text(v)
		}
		row = append(row, v)
	}
	return row
}

// plain has names and values.
func (s *Sheet[R]) plain() table.Writer {
	t := table.NewWriter()
	var names table.Row
	for _, c := range s.Columns {
		names = append(names, c.Name)
	}
	t.AppendHeader(names)
	for _, r := range s.Rows {
		var row table.Row
		for _, c := range s.Columns {
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
