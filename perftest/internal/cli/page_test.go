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

	"github.com/gucx/gucx/internal/testenv"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the tables of docs/papers")

const tupleqPage = "../../../docs/papers/tupleq.md"

// pageTable matches a table of a page: a comment with the command, the columns of the row names, the column of the
// column names, and the column of the values.
//
//	<!-- perftest sp --model connectxddr => class,factor by protocol: seconds -->
var pageTable = regexp.MustCompile(`<!-- perftest (.+?) => (\S+) by (\S+): (\S+) -->\n((?:\|.*\n)*)`)

// partOf are flags that make a slow command of the page print some of its rows. Only sweeps run them.
var partOf = map[string]string{"sp --model connectxddr": " --class B --factor 4"}

// The tables of the page are equal to the output of their commands, as a prediction is the same on each
// machine. Slow commands run in sweeps only, and with all of their rows for GUCX_TEST_SOAK=1 and -rewrite.
func TestTupleQPage(t *testing.T) {
	testenv.SkipShort(t, "virtual time has one goroutine")
	all := *rewrite || testenv.Soak()
	text, err := os.ReadFile(tupleqPage)
	require.NoError(t, err)
	results := map[string][]map[string]string{}
	tables := 0
	anew := pageTable.ReplaceAllStringFunc(string(text), func(whole string) string {
		tables++
		m := pageTable.FindStringSubmatch(whole)
		part := partOf[m[1]]
		switch {
		case all:
			part = ""
		case part != "" && !testenv.Sweep():
			return whole
		}
		if results[m[1]] == nil {
			results[m[1]] = run(t, m[1]+part)
		}
		got := pivot(results[m[1]], strings.Split(m[2], ","), m[3], m[4])
		same := got == m[5] || part != "" && hasRows(m[5], got)
		assert.True(t, *rewrite || same, "perftest %s: %s\npage:\n%s\nnow:\n%s", m[1]+part, m[4], m[5], got)
		return strings.TrimSuffix(whole, m[5]) + got
	})
	assert.NotZero(t, tables)
	if *rewrite && !t.Failed() {
		require.NoError(t, os.WriteFile(tupleqPage, []byte(anew), 0o644))
	}
}

// emptyTable is the number of lines of a table without rows: head, rule, and end.
const emptyTable = 3

// hasRows reports whether a table has the rows of another one, and the same head.
func hasRows(table, other string) bool {
	lines := strings.Split(table, "\n")
	rows := strings.Split(other, "\n")
	for _, row := range rows {
		if !slices.Contains(lines, row) {
			return false
		}
	}
	return lines[0] == rows[0] && len(rows) > emptyTable
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

// pivot returns a table in Markdown with a row for each key and a column for each value of across.
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

// pageText formats a value as in the page.
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
