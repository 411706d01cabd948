package cli

import (
	"encoding/csv"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false, "write the tables of docs/papers/tupleq.md anew")

const tupleqPage = "../../../docs/papers/tupleq.md"

// pageTable is a table of a page: a comment with the command whose results it has, which columns
// of them name its rows, which one its columns, and which is in it.
//
//	<!-- perftest sp --model connectxddr => class,factor by protocol: seconds -->
var pageTable = regexp.MustCompile(`<!-- perftest (.+?) => (\S+) by (\S+): (\S+) -->\n((?:\|.*\n)*)`)

// The tables of the page are what their commands print: a prediction is the same on each
// machine.
func TestTupleQPage(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute with the race detector, for which it has one goroutine")
	}
	text, err := os.ReadFile(tupleqPage)
	require.NoError(t, err)
	results := map[string][]map[string]string{}
	tables := 0
	anew := pageTable.ReplaceAllStringFunc(string(text), func(whole string) string {
		tables++
		m := pageTable.FindStringSubmatch(whole)
		if results[m[1]] == nil {
			results[m[1]] = run(t, m[1])
		}
		got := pivot(results[m[1]], strings.Split(m[2], ","), m[3], m[4])
		assert.True(t, *rewrite || got == m[5], "perftest %s: %s\npage:\n%s\nnow:\n%s", m[1], m[4], m[5], got)
		return strings.TrimSuffix(whole, m[5]) + got
	})
	assert.NotZero(t, tables)
	if *rewrite && !t.Failed() {
		require.NoError(t, os.WriteFile(tupleqPage, []byte(anew), 0o644))
	}
}

// run runs a command and returns its rows.
func run(t *testing.T, command string) (rows []map[string]string) {
	t.Helper()
	code, out, errs := perftest(t, append(strings.Fields(command), "-q", "-o", "csv")...)
	require.Equal(t, exitOK, code, errs)
	lines, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	require.NoError(t, err)
	for _, line := range lines[1:] {
		row := map[string]string{}
		for i, name := range lines[0] {
			row[name] = line[i]
		}
		rows = append(rows, row)
	}
	return rows
}

// pivot is a table in Markdown with a row for each different key and a column for each
// different value of across.
func pivot(rows []map[string]string, key []string, across, value string) string {
	var names, columns []string
	cells := map[[2]string]string{}
	for _, r := range rows {
		var parts []string
		for _, k := range key {
			parts = append(parts, r[k])
		}
		name := strings.Join(parts, " | ")
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		if !slices.Contains(columns, r[across]) {
			columns = append(columns, r[across])
		}
		cells[[2]string{name, r[across]}] = pageText(value, r[value])
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | %s |\n%s|\n", strings.Join(key, " | "), strings.Join(columns, " | "),
		strings.Repeat("|---", len(key)+len(columns)))
	for _, name := range names {
		fmt.Fprintf(&b, "| %s |", name)
		for _, c := range columns {
			fmt.Fprintf(&b, " %s |", cells[[2]string{name, c}])
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// pageText is a figure as the page has it.
func pageText(name, text string) string {
	v, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil:
		return text
	case name == "availability" || name == "relative":
		return fmt.Sprintf("%.1f %%", 100*v)
	}
	return fmt.Sprintf("%.2f", v)
}
