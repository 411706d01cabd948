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

	"github.com/gucx/gucx/perftest/internal/result"
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
		r.OverNS, r.OverPct = 5, -0.25
	}
	return r
}

func rate(layer string, size int, over string) result.Record {
	r := latency(layer, size, 40, over)
	r.Test, r.Window = "put_bw", 256
	return r
}

func TestWrite_Golden(t *testing.T) {
	for _, format := range Formats() {
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

// jsonKeys are what scripts rely on.
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
	rows, err := csv.NewReader(&b).ReadAll() // refuses rows of another length
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
	for _, format := range Formats() {
		assert.ErrorIs(t, Write(f, format, run, records), os.ErrClosed, format)
	}
}

func TestGrids_PackTestsByWidth(t *testing.T) {
	var many []result.Record
	for _, name := range []string{"put_lat", "put_bw", "get_mr", "flush"} {
		r := rate("verbs", 8, "")
		r.Test = name
		if name == "put_lat" || name == "flush" {
			r.Window = 1
		}
		many = append(many, r)
	}
	gs := grids(nil, many)
	require.Len(t, gs, 2)
	assert.Equal(t, []string{"put_lat", "put_bw", "get_mr"}, gs[0].tests)
	assert.Equal(t, []string{"flush"}, gs[1].tests)
	assert.Empty(t, grids(nil, nil))
}

func TestWrite_TheDefaultTableIsNarrow(t *testing.T) {
	var all []result.Record
	for _, name := range []string{"put_lat", "put_bw", "get_bw"} {
		for _, size := range []int{1, 512 << 10, 1 << 20} {
			for _, layer := range []string{"verbs", "uct", "ucp"} {
				r := rate(layer, size, "uct")
				if name == "put_lat" {
					r = latency(layer, size, 104_000, "uct")
				}
				r.Test, r.OverNS, r.OverPct = name, -23_456.7, -23.45
				all = append(all, r)
			}
		}
	}
	var b bytes.Buffer
	require.NoError(t, Write(&b, "table", run, all))
	_, tables, _ := strings.Cut(b.String(), "\n\n")
	tables, _, one := strings.Cut(tables, "\n\n")
	require.True(t, one)
	assert.Contains(t, tables, "get_bw", "one table")
	for _, line := range strings.Split(tables, "\n") {
		assert.LessOrEqual(t, utf8.RuneCountInString(line), 110, line)
	}
}

func TestGrid_RowsOfALayerThatComesLate(t *testing.T) {
	mr := rate("uct", 8, "")
	g := grids([]string{"verbs", "uct"}, []result.Record{mr, latency("verbs", 8, 1, "")})[0]
	assert.Equal(t, []key{{8, "verbs"}, {8, "uct"}}, g.keys())
}

func TestGrid_RowWithoutRecordIsBlank(t *testing.T) {
	g := grids(nil, records)[0]
	cells := g.cells(key{1 << 20, "verbs"}, "put_bw")
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
