package config

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// PrintOptions selects what Print prints.
type PrintOptions struct {
	// Docs adds the help and the grammar of each name as comments.
	Docs bool
	// Filter selects the names that contain it. It is not case-sensitive.
	Filter string
}

// Print writes the tables as lines NAME=value, in the order of the tables and of their fields. A shell can execute the
// lines. For a field with its zero value Print writes the default.
func Print(w io.Writer, opts PrintOptions, tables ...Table) error {
	out := bufio.NewWriter(w)
	for _, t := range tables {
		fields, err := t.fields()
		if err != nil {
			return err
		}
		s, err := t.structOf()
		if err != nil {
			return err
		}
		fields = matching(fields, opts.Filter)
		if len(fields) == 0 {
			continue
		}
		if opts.Docs {
			comment(out, title(t))
		}
		for i := range fields {
			f := &fields[i]
			if opts.Docs {
				comment(out, f.doc, "Syntax: "+f.codec.grammar+".")
			}
			fmt.Fprintf(out, "%s=%s\n", f.name, shellWord(f.text(s)))
			if opts.Docs {
				fmt.Fprintln(out)
			}
		}
	}
	return out.Flush()
}

// matching returns the fields whose names contain the filter.
func matching(fields []field, filter string) []field {
	var kept []field
	for _, f := range fields {
		if strings.Contains(f.name, strings.ToUpper(filter)) {
			kept = append(kept, f)
		}
	}
	return kept
}

// comment writes a block of comment lines of at most 80 columns.
func comment(w io.Writer, paragraphs ...string) {
	const width = 80 - len("# ")
	fmt.Fprintln(w, "#")
	for _, p := range paragraphs {
		line := ""
		for _, word := range strings.Fields(p) {
			if line != "" && len(line)+1+len(word) > width {
				fmt.Fprintf(w, "# %s\n", line)
				line = ""
			}
			line = strings.TrimPrefix(line+" "+word, " ")
		}
		if line != "" {
			fmt.Fprintf(w, "# %s\n", line)
		}
	}
	fmt.Fprintln(w, "#")
}

// shellWord returns s, with quotes if a POSIX shell would not parse s as one word.
func shellWord(s string) string {
	for _, r := range s {
		plain := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-+.,:/^%@=", r)
		if !plain {
			return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
		}
	}
	return s
}
