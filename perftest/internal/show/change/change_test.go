package change

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/perftest/internal/measure/result"
)

var usual = Options{Alpha: 0.05, Threshold: 5}

// conditions of a run.
var conditions = result.Run{Machine: result.Machine{CPU: "Some CPU", Cores: 2}, Commit: "0123abcd",
	Settings: result.Settings{Device: "memory", Transport: "sm", Iterations: 1000}}

// run returns a run with a record of each test. The rounds have a mean of ns and differ by percents.
func run(ns float64, tests ...string) Run {
	r := Run{Run: conditions}
	for _, test := range tests {
		rec := result.Record{Test: test, Transport: "sm", Layer: "ucp", Size: 8, Window: 1, LoopNS: ns}
		for i := range 10 {
			rec.RoundsNS = append(rec.RoundsNS, ns*(0.955+0.01*float64(i)))
		}
		r.Records = append(r.Records, rec)
	}
	return r
}

func TestCompare_Rounds(t *testing.T) {
	for _, c := range []struct {
		name            string
		before, after   float64
		differs, slower bool
	}{
		{"same", 100, 100, false, false},
		{"within the rounds", 100, 100.5, false, false},
		{"slower", 100, 130, true, true},
		{"slower, within the limit", 100, 104.5, true, false},
		{"faster", 130, 100, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			table, err := Compare(Runs{run(c.before, "am_lat")}, Runs{run(c.after, "am_lat")}, usual)
			require.NoError(t, err)
			assert.False(t, table.OfRuns)
			row := table.Rows[0]
			assert.Equal(t, c.differs, row.Differs, "p %v", row.P)
			assert.Equal(t, c.slower, row.Slower)
			assert.InDelta(t, 100*(c.after/c.before-1), row.Pct, 1e-9)
			assert.InDelta(t, row.Pct, table.Geomean(), 1e-9)
			assert.Equal(t, 10, row.Before.N)
			assert.Less(t, row.Before.LoNS, row.Before.MedianNS)
			assert.Less(t, row.Before.MedianNS, row.Before.HiNS)
			assert.Equal(t, c.slower, table.Worst(usual.Threshold) != nil)
		})
	}
}

func TestCompare_FourRunsAreTheSample(t *testing.T) {
	var a, b Runs
	for i := range 4 {
		a, b = append(a, run(100+float64(i), "am_lat")), append(b, run(110+float64(i), "am_lat"))
	}
	table, err := Compare(a, b, usual)
	require.NoError(t, err)
	assert.True(t, table.OfRuns)
	assert.Equal(t, 4, table.Rows[0].Before.N)
	assert.True(t, table.Rows[0].Slower)
	assert.Zero(t, table.Rows[0].Before.HiNS, "four values have no interval of 95 %")

	table, err = Compare(a[:3], b, usual)
	require.NoError(t, err)
	assert.False(t, table.OfRuns)
	assert.Equal(t, 30, table.Rows[0].Before.N)
}

func TestCompare_RowsOfOnlyOneFile(t *testing.T) {
	table, err := Compare(Runs{run(100, "am_lat", "put_lat")}, Runs{run(100, "put_lat", "tag_lat", "tag_bw")}, usual)
	require.NoError(t, err)
	require.Len(t, table.Rows, 1)
	assert.Equal(t, "put_lat", table.Rows[0].Test)
	assert.Equal(t, [2]int{1, 2}, [2]int{table.OnlyA, table.OnlyB})
	_, err = Compare(Runs{run(100, "am_lat")}, Runs{run(100, "tag_lat")}, usual)
	assert.ErrorIs(t, err, errNothing)
}

func TestTable_WorstIsFirst(t *testing.T) {
	a := Run{Run: conditions, Records: append(run(100, "am_lat").Records, run(100, "put_lat").Records...)}
	b := Run{Run: conditions, Records: append(run(120, "am_lat").Records, run(150, "put_lat").Records...)}
	table, err := Compare(Runs{a}, Runs{b}, usual)
	require.NoError(t, err)
	assert.EqualError(t, table.Worst(5), "2 of 2 rows are slower by more than 5 %; most put_lat of 8 bytes, sm ucp: 50.0 %")
}

func TestDifferences(t *testing.T) {
	a, b := Runs{run(1, "am_lat")}, Runs{run(1, "am_lat")}
	assert.Empty(t, Differences(a, b))
	b[0].Machine.CPU, b[0].Settings.Iterations, b[0].Commit = "Other CPU", 5, "another"
	assert.Equal(t, []string{`machine: ["Some CPU, 2 cores"] in A, ["Other CPU, 2 cores"] in B`, `iterations: ["1000"] in A, ["5"] in B`}, Differences(a, b))
}

func TestFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.json")
	require.NoError(t, CheckFile(file))
	assert.NoFileExists(t, file)
	one, two := run(100, "am_lat"), run(101, "am_lat", "put_lat")
	require.NoError(t, Append(file, one.Run, one.Records))
	require.NoError(t, CheckFile(file))
	require.NoError(t, Append(file, two.Run, two.Records))
	got, err := Read(file)
	require.NoError(t, err)
	assert.Equal(t, Runs{one, two}, got)
	assert.Equal(t, "2 runs of gucx 0123abcd", got.Title())
	assert.Error(t, CheckFile(t.TempDir()))
}

func TestRead_RejectsInvalidFiles(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ text, want string }{
		"empty":         {"", "no results"},
		"a table":       {"Size Layer\n", "no results"},
		"no record":     {`{"machine":{},"settings":{}}`, "no results"},
		"no run":        {`{"loop_ns":1}`, "no results"},
		"another study": {`{"machine":{},"study":{}}{"threads":1}`, "no results"},
		"no object":     {`[1]`, "no results"},
		"wrong type":    {`{"machine":{},"settings":{}}{"loop_ns":"x"}`, "no results"},
		"a part":        {`{"machine":{},"settings":{},"incomplete":"interrupt"}{"loop_ns":1}`, "ended early: interrupt"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(dir, "file")
			require.NoError(t, os.WriteFile(file, []byte(c.text), 0o600))
			_, err := Read(file)
			require.ErrorContains(t, err, c.want)
			assert.ErrorContains(t, err, file)
		})
	}
	_, err := Read(filepath.Join(dir, "absent"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestSheet(t *testing.T) {
	a, b := Runs{run(100, "am_lat", "put_lat", "tag_lat")}, Runs{run(130, "am_lat", "put_lat")}
	b[0].Records[1] = a[0].Records[1]
	table, err := Compare(a, b, usual)
	require.NoError(t, err)
	s := table.Sheet(Head{A: "a.json", B: "b.json", Alpha: 0.05, Threshold: 5, Unlike: []string{"kernel"}}, [2]string{a.Title(), b.Title()})
	var out bytes.Buffer
	require.NoError(t, s.Write(&out, "md"))
	for _, want := range []string{"A: a.json, 1 run of gucx 0123abcd", "Not the same: kernel", "+30.0% !", "| ~ |", "Rows of A alone: 1.", "save at least 4"} {
		assert.Contains(t, out.String(), want)
	}
	out.Reset()
	require.NoError(t, s.Write(&out, "json"))
	assert.Contains(t, out.String(), `"samples":"rounds"`)
}
