// Command perftable writes the tables of docs/perf/README.md anew, from the results beside it,
// which perftest instructions -o json has written. Run it as make perf-tables.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// page is the document, from the root of the module.
const page = "docs/perf/README.md"

func main() {
	text, err := rewritten(".")
	if err == nil {
		err = os.WriteFile(page, text, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "perftable:", err)
		os.Exit(1)
	}
}

// place finds a table and the comments around it. The first comment names the file of results,
// relative to the page.
var place = regexp.MustCompile(`(?s)(<!-- table of ([\w./-]+) -->\n).*?(<!-- end of table -->\n)`)

// rewritten returns the page of the module in root with all tables made from the results.
func rewritten(root string) ([]byte, error) {
	name := filepath.Join(root, page)
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var failed error
	text = place.ReplaceAllFunc(text, func(old []byte) []byte {
		m := place.FindSubmatch(old)
		results, err := os.ReadFile(filepath.Join(filepath.Dir(name), string(m[2])))
		if err != nil {
			failed = err
			return old
		}
		t, err := table(results)
		if err != nil {
			failed = fmt.Errorf("%s: %w", m[2], err)
		}
		return slices.Concat(m[1], []byte("\n"), t, []byte("\n"), m[3])
	})
	return text, failed
}

// record is a line of perftest instructions -o json that has a result.
type record struct {
	Op, Layer, Switch string
	Instructions      int
}

// column returns the heading of the record's column: the layer, and the transport if the layer
// has several.
func (r *record) column() string {
	switch {
	case r.Layer == "verbs":
		return "verbs"
	case r.Switch == "":
		return r.Layer + " rc"
	}
	return r.Layer + " " + r.Switch
}

// table returns a Markdown table of the instructions in results: a row for each operation, a
// column for each layer and transport, both in the order of the results. The first line of the
// results describes the run.
func table(results []byte) ([]byte, error) {
	var ops, columns []string
	cells := map[[2]string]int{}
	for line := range bytes.Lines(results) {
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, err
		}
		if r.Op == "" {
			continue
		}
		if !slices.Contains(ops, r.Op) {
			ops = append(ops, r.Op)
		}
		if !slices.Contains(columns, r.column()) {
			columns = append(columns, r.column())
		}
		cells[[2]string{r.Op, r.column()}] = r.Instructions
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "| operation | %s |\n|---|%s\n", strings.Join(columns, " | "), strings.Repeat("---:|", len(columns)))
	for _, op := range ops {
		fmt.Fprintf(&b, "| `%s` |", op)
		for _, c := range columns {
			text := "–"
			if n := cells[[2]string{op, c}]; n > 0 { // 0: the transport has no such operation
				text = strconv.Itoa(n)
			}
			fmt.Fprintf(&b, " %s |", text)
		}
		b.WriteByte('\n')
	}
	return b.Bytes(), nil
}
