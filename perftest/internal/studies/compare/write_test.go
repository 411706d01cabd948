package compare

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

var conditions = Conditions{
	Machine: result.Machine{CPU: "Some CPU", Cores: 2, Kernel: "6.1", Arch: "amd64", Go: "go1.26"},
	Commit:  "0123abcd", UCX: "1.13.1", CPUs: []int{1, 0},
	Rounds: 2, RunNS: 150_000_000, NearNS: defaultNear, Agreement: agreement,
}

// rowsOfEachKind returns rows whose goals are reached and missed, near and far rows, rows with only moved pairs, of
// loopback, and rows that have failed at the first or a later pair.
func rowsOfEachKind() (rows []Row) {
	cases := Cases()
	pairs := []Pair{near(85, 50.5), near(86, 51.5), moved(200, 50), far(300, 50), far(310, 52)}
	for _, of := range []struct {
		c      Case
		pairs  []Pair
		failed error
	}{
		{cases[0], pairs, nil},
		{cases[3], []Pair{near(17_200, 14_000), near(17_600, 14_400)}, nil},
		{cases[4], pairs[:2], errors.New("signal: killed")},
		{cases[5], pairs[2:3], nil},
		{cases[6], nil, errors.New("no, \"such\" layout")},
		{cases[16], []Pair{{10, 9, nil, Alone}}, nil},
	} {
		rows = append(rows, summarize(of.c, of.pairs, of.failed)...)
	}
	return rows
}

func TestWrite_Golden(t *testing.T) {
	for _, format := range sheet.Formats() {
		t.Run(format, func(t *testing.T) {
			var b bytes.Buffer
			require.NoError(t, write(&b, format, conditions, rowsOfEachKind()))
			file := filepath.Join("testdata", "golden."+format)
			if *rewrite {
				require.NoError(t, os.WriteFile(file, b.Bytes(), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, string(want), b.String())
		})
	}
}

func TestWrite_JSONHasEveryPair(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, write(&b, "json", conditions, rowsOfEachKind()))
	d := json.NewDecoder(&b)
	var c Conditions
	require.NoError(t, d.Decode(&c))
	assert.Equal(t, conditions, c)
	for _, want := range rowsOfEachKind() {
		var r struct {
			Pairs, Moved []Pair
			Phase        Phase
			Unit         string
			Error        string
		}
		require.NoError(t, d.Decode(&r))
		assert.Equal(t, want.Pairs, r.Pairs)
		assert.Equal(t, want.Moved, r.Moved)
		assert.Equal(t, want.Phase, r.Phase)
		assert.Equal(t, want.Case.Metric.Unit(), r.Unit)
		assert.Equal(t, want.Failed != nil, r.Error != "")
	}
	assert.False(t, d.More())
}

func TestWrite_FitsATerminalOf80(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, write(&b, "table", conditions, rowsOfEachKind()))
	assert.LessOrEqual(t, sheet.TextWidth(b.String()), 80, b.String())
}

func TestWrite_CSVIsRectangular(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, write(&b, "csv", conditions, rowsOfEachKind()))
	rows, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
	require.NoError(t, err)
	assert.Len(t, rows, 1+len(rowsOfEachKind()))
}

func TestWrite_ReportsAFailedWriter(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	for _, format := range sheet.Formats() {
		assert.ErrorIs(t, write(f, format, conditions, rowsOfEachKind()), os.ErrClosed, format)
	}
	assert.ErrorIs(t, writeList(f, Cases()), os.ErrClosed)
}
