package compare

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// recorded returns an output of ucx_perftest 1.13.1.
func recorded(t *testing.T, name string) string {
	b, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return string(b)
}

func TestParseUCX_Recorded(t *testing.T) {
	for _, c := range []struct {
		file string
		ops  int
		want float64 // ns
	}{
		{"self_am_lat.csv", 1_000_000, 1e9 / 46356401},
		{"self_am_bw.csv", 1_000_000, 1e9 / 11370375},
		{"posix_put_bw_64k.csv", 20_000, 5997},
		{"tcp_put_bw_1m.csv", 500, 4597666},
	} {
		t.Run(c.file, func(t *testing.T) {
			ns, err := parseUCX(recorded(t, c.file), c.ops)
			require.NoError(t, err)
			assert.InDelta(t, c.want, ns, 1e-6)
		})
	}
}

func TestParseUCX_RejectsInvalidOutput(t *testing.T) {
	const header = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n"
	for _, c := range []struct {
		name, out, want string
		ops             int
	}{
		{"nothing", "", "no line of figures", 1},
		{"an error", recorded(t, "too_long.csv"), "no line of figures", 1},
		{"the table", recorded(t, "self_am_lat.table"), "no line of figures", 1},
		{"progress without an end", recorded(t, "tcp_am_lat_progress.csv"), "no line of figures", 300_000},
		{"fewer operations than requested", recorded(t, "self_am_lat.csv"), "of 2000000", 2_000_000},
		{"no time column", strings.Replace(recorded(t, "self_am_lat.csv"), "overall_lat", "x", 1), "overall_lat", 1},
		{"no rate column", strings.Replace(recorded(t, "self_am_lat.csv"), "overall_mr", "x", 1), "overall_mr", 1},
		{"columns in another order", strings.Replace(recorded(t, "posix_put_bw_64k.csv"), "5.997,5.997,", "59.97,59.97,", 1), "contradict", 1},
		{"a rate of zero", header + "10,0,0,0,0,0,0,0", "overall_mr is 0", 1},
		{"not a number", header + "10,0,0,NaN,0,0,0,1", "overall_lat", 1},
		{"text", header + "10,0,0,x,0,0,0,1", "overall_lat", 1},
		{"an incomplete line", header + "10,0,0", "no line of figures", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parseUCX(c.out, c.ops)
			assert.ErrorContains(t, err, c.want)
		})
	}
}

func TestParseUCX_ManyMoreColumns(t *testing.T) {
	ns, err := parseUCX("noise, of, any, kind\niterations,new,overall_lat,overall_mr\n7,1,0.002,500000000\n", 7)
	require.NoError(t, err)
	assert.InDelta(t, 2, ns, 1e-9)
}

func FuzzParseUCX(f *testing.F) {
	for _, name := range []string{"self_am_lat.csv", "tcp_put_bw_1m.csv", "too_long.csv"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(f, err)
		f.Add(string(b))
	}
	f.Fuzz(func(t *testing.T, out string) {
		if ns, err := parseUCX(out, 1); err == nil {
			assert.Positive(t, ns)
		}
	})
}
