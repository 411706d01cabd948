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

	"github.com/gucx/gucx/perftest/internal/report"
	"github.com/gucx/gucx/perftest/internal/result"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

var conditions = Conditions{
	Machine: result.Machine{CPU: "Some CPU", Cores: 2, Kernel: "6.1", Arch: "amd64", Go: "go1.26"},
	Commit:  "0123abcd", UCX: "1.13.1", CPUs: []int{1, 0},
	Rounds: 2, RunNS: 150_000_000, NearNS: 100, Spread: spread,
}

// summaries are one of each kind: reached, missed, nothing near, failed.
func summaries() []Summary {
	cases := Cases()
	pairs := []Pair{{85, 50.5, 55}, {86, 51.5, 60}, {200, 50, 300}, {300, 50, 60}}
	mib1 := []Pair{{17_200, 14_000, 50}, {17_600, 14_400, 51}}
	return []Summary{
		summarize(cases[0], pairs, conditions.NearNS, nil),
		summarize(cases[3], mib1, conditions.NearNS, nil),
		summarize(cases[4], pairs, conditions.NearNS, nil),
		summarize(cases[5], pairs[2:3], conditions.NearNS, nil),
		summarize(cases[6], nil, conditions.NearNS, errors.New("no, \"such\" layout")),
	}
}

func TestWrite_Golden(t *testing.T) {
	for _, format := range report.Formats() {
		t.Run(format, func(t *testing.T) {
			var b bytes.Buffer
			require.NoError(t, write(&b, format, conditions, summaries()))
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
	require.NoError(t, write(&b, "json", conditions, summaries()))
	d := json.NewDecoder(&b)
	var c Conditions
	require.NoError(t, d.Decode(&c))
	assert.Equal(t, conditions, c)
	for _, s := range summaries() {
		var r struct {
			Pairs []Pair
			Unit  string
			Error string
		}
		require.NoError(t, d.Decode(&r))
		assert.Equal(t, s.Pairs, r.Pairs)
		assert.Equal(t, s.Case.Metric.Unit(), r.Unit)
		assert.Equal(t, s.Failed != nil, r.Error != "")
	}
	assert.False(t, d.More())
}

func TestWrite_CSVIsRectangular(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, write(&b, "csv", conditions, summaries()))
	rows, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
	require.NoError(t, err)
	assert.Len(t, rows, 1+len(summaries()))
}

func TestWrite_ReportsAFailedWriter(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	for _, format := range report.Formats() {
		assert.ErrorIs(t, write(f, format, conditions, summaries()), os.ErrClosed, format)
	}
	assert.ErrorIs(t, writeList(f, Cases()), os.ErrClosed)
}
