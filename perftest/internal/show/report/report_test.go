package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

var run = result.Run{
	Machine:  result.Machine{CPU: "Some CPU", Cores: 2, Kernel: "6.1", Arch: "amd64", Go: "go1.26", GOMAXPROCS: 2, GOGC: "100", ProbeNS: 51.4},
	Commit:   "0123abcd",
	Clock:    result.Clock{Source: "tsc", TicksPerNS: 2.6, ResolutionNS: 0.385, CostNS: 8.8},
	Settings: result.Settings{Device: "softhca0", Transport: "rc", Fabric: "shm", Iterations: 1000, Rounds: 10, Warmup: 100, Window: 256, CPUs: []int{0, 1}, StopPeer: true},
}

var records = []result.Record{
	latency("verbs", 8, 70, ""), latency("uct", 8, 75, "verbs"), latency("ucp", 8, 78.25, "uct"),
	latency("verbs", 1<<20, 15000, ""), latency("uct", 1<<20, 15010, "verbs"), latency("ucp", 1<<20, 15020, "uct"),
	rate("verbs", 8, ""), rate("uct", 8, "verbs"), rate("ucp", 8, "uct"),
}

func latency(layer string, size int, ns float64, over string) result.Record {
	r := result.Record{Layer: layer, Transport: "rc", Fabric: "shm", Test: "put_lat", Size: size, Window: 1, Ops: 1000,
		P50NS: ns, P99NS: 2 * ns, MaxNS: 9 * ns, PostNS: ns * 0.75, PostP99NS: ns * 1.5, FlushNS: ns * 0.25, FlushP99NS: ns * 0.5,
		LoopNS: ns, MsgPerS: 1e9 / ns, MiBPerS: 1e9 / ns * float64(size) / result.MiB, Over: over}
	if over != "" {
		r.OverNS, r.OverPct, r.OverLoNS, r.OverHiNS = 5, -0.25, 4, 6
	}
	return r
}

func rate(layer string, size int, over string) result.Record {
	r := latency(layer, size, 40, over)
	r.Test, r.Window = "put_bw", 256
	return r
}

// With several transports, rows and sentences name their transport, in the order of the records.
func TestWrite_SeveralTransports(t *testing.T) {
	all := append([]result.Record{}, records...)
	for _, r := range records[1:3] {
		r.Transport = "tcp"
		all = append(all, r)
	}
	var b bytes.Buffer
	require.NoError(t, Write(&b, "table", run, all))
	assert.Regexp(t, `(?s) 8 B .*rc verbs.*rc uct.*rc ucp.*tcp uct.*tcp ucp.* 1 MiB .*rc verbs`, b.String())
	assert.Contains(t, b.String(), "rc: UCP adds")
	assert.Contains(t, b.String(), "tcp: UCP adds")
	assert.NotContains(t, b.String(), "tcp verbs")
}

func TestWrite_Golden(t *testing.T) {
	for _, format := range sheet.Formats() {
		t.Run(format, func(t *testing.T) {
			var b bytes.Buffer
			require.NoError(t, Write(&b, format, run, records))
			file := filepath.Join("testdata", "put."+format)
			if *rewrite {
				require.NoError(t, os.WriteFile(file, b.Bytes(), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, string(want), b.String())
		})
	}
}

// jsonKeys are the keys that scripts use.
var jsonKeys = []string{"layer", "transport", "fabric", "test", "size", "p50_ns", "p99_ns", "post_ns", "flush_ns", "msg_per_s", "mib_per_s"}

func TestWrite_JSONHasTheRunFirstAndEveryKey(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, Write(&b, "json", run, records))
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	require.Len(t, lines, 1+len(records))

	var first map[string]any
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &first))
	for _, k := range []string{"machine", "commit", "clock", "settings"} {
		assert.Contains(t, first, k)
	}
	for i, line := range lines[1:] {
		var m map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		for _, k := range jsonKeys {
			assert.Contains(t, m, k)
		}
		var back result.Record
		require.NoError(t, json.Unmarshal([]byte(line), &back))
		assert.Equal(t, records[i], back)
	}
}

func TestWrite_CSVIsRectangularWithTheSameNames(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, Write(&b, "csv", run, records))
	rows, err := csv.NewReader(&b).ReadAll() // rejects rows of another length
	require.NoError(t, err)
	require.Len(t, rows, 1+len(records))
	for _, k := range jsonKeys {
		assert.Contains(t, rows[0], k)
	}
	assert.Equal(t, "uct", rows[2][0])
}

func TestWrite_UnknownFormat(t *testing.T) {
	assert.ErrorContains(t, Write(&bytes.Buffer{}, "xml", run, records), "table, md, csv, json")
}

func TestWrite_ReportsAFailedWriter(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	for _, format := range sheet.Formats() {
		assert.ErrorIs(t, Write(f, format, run, records), os.ErrClosed, format)
	}
}

func TestGrids_PackTestsThatFit(t *testing.T) {
	var many []result.Record
	for _, name := range []string{"put_lat", "put_bw", "get_mr", "flush"} {
		r := rate("verbs", 8, "")
		r.Test = name
		if name == "put_lat" || name == "flush" {
			r.Window = 1
		}
		many = append(many, r)
	}
	three := func(g grid) bool { return g.figures() <= 13 }
	gs := grids(result.Settings{}, many, three)
	require.Len(t, gs, 3)
	assert.Equal(t, []string{"put_lat"}, gs[0].tests)
	assert.Equal(t, []string{"put_bw", "get_mr"}, gs[1].tests, "rates in the same table")
	assert.Equal(t, []string{"flush"}, gs[2].tests)
	assert.Len(t, grids(result.Settings{}, many[:3], three), 1, "all tests in one table if they fit")
	assert.Empty(t, grids(result.Settings{}, nil, three))
	assert.Len(t, grids(result.Settings{}, many, func(grid) bool { return false }), 4, "a separate table for each test that is too wide")
}

// worst returns results of the default tests with the longest numbers, and times up to ns.
func worst(ns float64) (all []result.Record) {
	for _, name := range []string{"put_lat", "put_bw", "get_bw"} {
		for _, size := range []int{1, 512 << 10, 1 << 20} {
			for _, layer := range []string{"verbs", "uct", "ucp"} {
				r := rate(layer, size, "uct")
				if name == "put_lat" {
					r = latency(layer, size, ns, "uct")
				}
				r.Test, r.OverNS, r.OverPct, r.Transport = name, -0.9876*ns, -0.02345*ns, "xrc_mlx5"
				all = append(all, r)
			}
		}
	}
	return all
}

func TestWrite_FitsATerminalOf80(t *testing.T) {
	for _, ns := range []float64{0.5, 78, 104_000, 999_999.4, 1.0449e6, 5.5555e8, 1e9, 9.9999e10, 1e12} {
		var b bytes.Buffer
		require.NoError(t, Write(&b, "table", run, append(worst(ns), latency("uct", 8, ns, "")))) // rows of two transports
		for _, line := range strings.Split(b.String(), "\n") {
			assert.LessOrEqual(t, utf8.RuneCountInString(line), 80, line)
		}
		assert.Contains(t, b.String(), "get_bw")
	}
}

func TestInWords(t *testing.T) {
	over := func(r result.Record, ns, pct float64) result.Record {
		r.OverNS, r.OverPct, r.OverLoNS, r.OverHiNS = ns, pct, min(0.9*ns, 1.1*ns), max(0.9*ns, 1.1*ns)
		return r
	}
	lat := func(layer, below string, ns, pct float64) result.Record {
		return over(latency(layer, 8, 70, below), ns, pct)
	}
	bw := func(layer, below string, ns, pct float64) result.Record { return over(rate(layer, 8, below), ns, pct) }
	for _, c := range []struct {
		name    string
		records []result.Record
		want    string
	}{
		{"put", []result.Record{lat("verbs", "", 0, 0), lat("uct", "verbs", 14.2, 17.6), lat("ucp", "uct", 4.3, 6.1)},
			"UCP adds 4.3 ns (3.9 to 4.7), 6 %, to an 8-byte put over UCT; UCT adds 14 ns (13 to 16), 18 %, over verbs."},
		{"window", []result.Record{bw("uct", "", 0, 0), bw("ucp", "uct", 1.4, 2.9)},
			"UCP adds 1.4 ns (1.3 to 1.5), 3 %, to an 8-byte put in windows of 256 over UCT."},
		{"nothing", []result.Record{lat("uct", "", 0, 0), lat("ucp", "uct", -0.4, -1)},
			"UCP adds less than 1 ns to an 8-byte put over UCT."},
		{"faster", []result.Record{lat("uct", "", 0, 0), lat("ucp", "uct", -5, -6)},
			"UCP is 5.0 ns (4.5 to 5.5), 6 %, faster than UCT in an 8-byte put."},
		{"interval with 0", []result.Record{lat("uct", "", 0, 0), {Layer: "ucp", Test: "put_lat", Size: 8, Over: "uct", OverNS: 5, OverLoNS: -1, OverHiNS: 9}}, ""},
		{"no interval", []result.Record{lat("uct", "", 0, 0), {Layer: "ucp", Test: "put_lat", Size: 8, Over: "uct", OverNS: 5}}, ""},
		{"one layer", []result.Record{lat("uct", "", 0, 0)}, ""},
		{"no size of 8", []result.Record{latency("uct", 2048, 70, ""), latency("uct", 64, 70, ""), over(latency("ucp", 64, 70, "uct"), 9, 10)},
			"UCP adds 9.0 ns (8.1 to 9.9), 10 %, to a 64-byte put over UCT."},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, inWords(c.records)) })
	}
}

func TestArticle(t *testing.T) {
	for n, want := range map[int]string{8: "an", 11: "an", 16: "a", 18: "an", 80: "an", 1: "a", 110: "a", 8192: "an", 11000: "an", 1 << 20: "a"} {
		assert.Equal(t, want, article(n), n)
	}
}

func wideEnough(grid) bool { return true }

func TestGrid_RowsOfALayerWithFewerTests(t *testing.T) {
	mr := rate("uct", 8, "")
	g := grids(result.Settings{Layers: []string{"verbs", "uct"}}, []result.Record{mr, latency("verbs", 8, 1, "")}, wideEnough)[0]
	assert.Equal(t, []key{{8, "rc", "verbs"}, {8, "rc", "uct"}}, g.keys())
}

func TestGrid_RowWithoutRecordIsBlank(t *testing.T) {
	g := grids(result.Settings{}, records, wideEnough)[0]
	cells := g.cells(key{1 << 20, "rc", "verbs"}, "put_bw")
	assert.Len(t, cells, len(rateColumns))
	for _, c := range cells {
		assert.Empty(t, c)
	}
}

func TestSizeText(t *testing.T) {
	for in, want := range map[int]string{0: "-", 1: "1 B", 1000: "1000 B", 1024: "1 KiB", 1536: "1536 B", 1 << 20: "1 MiB", 3 << 19: "1536 KiB"} {
		assert.Equal(t, want, sizeText(in))
	}
}
