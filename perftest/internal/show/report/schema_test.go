package report_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/show/report"
)

var conditions = result.Run{
	Machine:  result.Machine{CPU: "Some CPU", Cores: 2, Arch: "amd64"},
	Commit:   "0123abcd",
	Settings: result.Settings{Device: "soft0", Transport: "rc", Fabric: "shm"},
}

// sweep returns the records of one test through layers, of sizes 1 B to 1 MiB: each layer adds 7 ns to the one
// below.
func sweep(test string, window int, layers ...string) (all []result.Record) {
	for size := 1; size <= 1<<20; size *= 2 {
		for i, layer := range layers {
			ns := 60 + float64(size)/20 + 7*float64(i)
			r := result.Record{Layer: layer, Test: test, Size: size, Window: window, P50NS: ns, P99NS: 2 * ns}
			if i > 0 {
				r.Over, r.OverNS, r.OverPct = layers[i-1], 7, 700/(ns-7)
			}
			all = append(all, r)
		}
	}
	return all
}

// line is the published form of a record. Scripts depend on these names, so it does not use result.Record. Pointers
// are fields that must be present.
type line struct {
	Layer     *string  `json:"layer"`
	Transport *string  `json:"transport"`
	Fabric    *string  `json:"fabric"`
	Test      *string  `json:"test"`
	Size      *int     `json:"size"`
	P50NS     *float64 `json:"p50_ns"`
	P99NS     *float64 `json:"p99_ns"`
	P999NS    *float64 `json:"p999_ns"`
	PostNS    *float64 `json:"post_ns"`
	FlushNS   *float64 `json:"flush_ns"`
	MsgPerS   *float64 `json:"msg_per_s"`
	MiBPerS   *float64 `json:"mib_per_s"`

	Variant    *string  `json:"variant"`
	Window     *int     `json:"window"`
	Ops        *int     `json:"ops"`
	MaxNS      *float64 `json:"max_ns"`
	PostP99NS  *float64 `json:"post_p99_ns"`
	FlushP99NS *float64 `json:"flush_p99_ns"`
	LoopNS     *float64 `json:"loop_ns"`
	LoopCostNS *float64 `json:"loop_cost_ns"`

	Over    string  `json:"over"`
	OverNS  float64 `json:"over_ns"`
	OverPct float64 `json:"over_pct"`

	RankNS    float64 `json:"rank_ns"`
	Histogram []any   `json:"histogram"`

	OverLoNS float64   `json:"over_lo_ns"`
	OverHiNS float64   `json:"over_hi_ns"`
	RoundsNS []float64 `json:"rounds_ns"`
}

// required returns the fields that every record has.
func (l line) required() []any {
	return []any{l.Layer, l.Transport, l.Fabric, l.Test, l.Size, l.P50NS, l.P99NS, l.P999NS, l.PostNS, l.FlushNS,
		l.MsgPerS, l.MiBPerS, l.Variant, l.Window, l.Ops, l.MaxNS, l.PostP99NS, l.FlushP99NS, l.LoopNS, l.LoopCostNS}
}

func strict(line []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

func TestWrite_JSONSchema(t *testing.T) {
	records := append(sweep("put_lat", 1, "verbs", "uct", "ucp"), sweep("put_bw", 256, "verbs")...)
	records = append(records, result.Record{}) // zeros are values, not omissions
	var b bytes.Buffer
	require.NoError(t, report.Write(&b, "json", conditions, records))
	lines := bytes.Split(bytes.TrimSuffix(b.Bytes(), []byte("\n")), []byte("\n"))
	require.Len(t, lines, 1+len(records))

	var first struct {
		Machine  map[string]any `json:"machine"`
		Commit   string         `json:"commit"`
		Clock    map[string]any `json:"clock"`
		Settings map[string]any `json:"settings"`
	}
	require.NoError(t, strict(lines[0], &first))
	assert.Equal(t, "Some CPU", first.Machine["cpu"])
	assert.Equal(t, "0123abcd", first.Commit)
	assert.Equal(t, "soft0", first.Settings["device"])
	for i, text := range lines[1:] {
		var l line
		require.NoError(t, strict(text, &l), "%s", text)
		for at, v := range l.required() {
			require.NotNil(t, v, "field %d of line %d: %s", at, i, text)
		}
		assert.Equal(t, records[i].Size, *l.Size)
	}
}

// anyRecords draws records with arbitrary text. Their Ops differ.
func anyRecords(t *rapid.T) []result.Record {
	figure := rapid.Float64Range(0, 1e12)
	n := rapid.IntRange(0, 20).Draw(t, "n")
	all := make([]result.Record, n)
	for i := range all {
		all[i] = result.Record{
			Layer: rapid.StringMatching(`[a-z,"|;= ]{1,8}`).Draw(t, "layer"), Transport: "rc", Fabric: "shm",
			Test: rapid.SampledFrom([]string{"put_lat", "put_bw", "flush"}).Draw(t, "test"),
			Size: rapid.IntRange(0, 1<<20).Draw(t, "size"), Window: 1, Ops: i,
			P50NS: figure.Draw(t, "p50"), MsgPerS: figure.Draw(t, "rate"),
		}
	}
	return all
}

func TestWrite_JSONHasEachRecordOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := anyRecords(t)
		var b bytes.Buffer
		require.NoError(t, report.Write(&b, "json", conditions, records))
		d := json.NewDecoder(&b)
		require.NoError(t, d.Decode(&result.Run{}))
		got := []result.Record{}
		for d.More() {
			var r result.Record
			require.NoError(t, d.Decode(&r))
			got = append(got, r)
		}
		require.Equal(t, records, got)
	})
}

func TestWrite_CSVHasEachRecordOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := anyRecords(t)
		var b bytes.Buffer
		require.NoError(t, report.Write(&b, "csv", conditions, records))
		rows, err := csv.NewReader(&b).ReadAll()
		require.NoError(t, err)
		require.Len(t, rows, 1+len(records))
		column := map[string]int{}
		for i, name := range rows[0] {
			column[name] = i
		}
		for i, row := range rows[1:] {
			r := records[i]
			require.Equal(t, []string{r.Layer, r.Test, strconv.Itoa(r.Size), strconv.Itoa(r.Ops)},
				[]string{row[column["layer"]], row[column["test"]], row[column["size"]], row[column["ops"]]})
			for name, want := range map[string]float64{"p50_ns": r.P50NS, "msg_per_s": r.MsgPerS} {
				got, err := strconv.ParseFloat(row[column[name]], 64)
				require.NoError(t, err)
				require.InDelta(t, want, got, 1e-3, name)
			}
		}
	})
}

// TestWrite_CSVNamesAreTheJSONNames checks that both machine-readable formats have the same names.
func TestWrite_CSVNamesAreTheJSONNames(t *testing.T) {
	full := result.Record{RankNS: 1, Over: "verbs", OverNS: 1, OverPct: 1, OverLoNS: 1, OverHiNS: 1}
	text, err := json.Marshal(full)
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(text, &fields))
	var b bytes.Buffer
	require.NoError(t, report.Write(&b, "csv", conditions, nil))
	names, err := csv.NewReader(&b).Read()
	require.NoError(t, err)
	assert.Len(t, names, len(fields), fmt.Sprint(names))
	for _, name := range names {
		assert.Contains(t, fields, name)
	}
}

// TestWrite_TextMentionsOnlyTestsThatRan checks the text formats of runs with some layers and tests.
func TestWrite_TextMentionsOnlyTestsThatRan(t *testing.T) {
	for _, format := range []string{"table", "md"} {
		t.Run(format, func(t *testing.T) {
			var b bytes.Buffer
			require.NoError(t, report.Write(&b, format, conditions, sweep("put_lat", 1, "uct")))
			assert.Contains(t, b.String(), "uct")
			assert.Contains(t, b.String(), "1 MiB")
			assert.Contains(t, b.String(), "0123abcd")
			for _, absent := range []string{"verbs", "ucp", "put_bw", "get_", "%!"} {
				assert.NotContains(t, b.String(), absent)
			}
		})
	}
}
