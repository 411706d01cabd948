package report

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/perftest/internal/measure/result"
)

func TestWarnings(t *testing.T) {
	skew := latency("ucp", 8, 100, "")
	skew.LoopNS = 310
	large := rate("uct", 8, "")
	large.Size = 64 << 10
	sockets := large
	sockets.Fabric = ""
	for _, c := range []struct {
		name    string
		change  func(*result.Run)
		records []result.Record
		want    string // part of the only warning; "" for none
	}{
		{"none", func(*result.Run) {}, records, ""},
		{"mean far above the median", func(*result.Run) {}, []result.Record{skew, latency("uct", 8, 70, "")}, "in 1 row the Mean .* put_lat of 8 B .ucp.: 3.1 times"},
		{"rates have no median", func(*result.Run) {}, []result.Record{func() result.Record { r := rate("uct", 8, ""); r.P50NS = 1; return r }()}, ""},
		{"load", func(r *result.Run) { r.Load = &result.Load{Initiator: 0.123} }, records, "initiator waited .* 12 % .* target for 0 %"},
		{"little load", func(r *result.Run) { r.Load = &result.Load{Target: 0.004} }, records, ""},
		{"one CPU", func(r *result.Run) { r.Settings.CPUs = []int{1, 1} }, records, "share a CPU"},
		{"copies", func(*result.Run) {}, []result.Record{large}, "from 4 KiB on MiB/s is how fast a CPU copies"},
		{"no software HCA", func(r *result.Run) { r.Settings.Device = "mlx5_0" }, []result.Record{large}, ""},
		{"beside sockets", func(*result.Run) {}, []result.Record{sockets}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			conditions := run
			c.change(&conditions)
			got := warnings(conditions, c.records)
			if c.want == "" {
				assert.Empty(t, got)
				return
			}
			if assert.Len(t, got, 1) {
				assert.Regexp(t, "^Warning: .*"+c.want, got[0])
			}
		})
	}
}

// A variant of ucp is compared with ucp, which is not always the previous layer.
func TestLegend_OfVariants(t *testing.T) {
	assert.Equal(t, legend, legendOf([]string{"uct", "ucp"}))
	assert.Contains(t, legendOf([]string{"ucp", "ucp-resolve"}), "are what they add to ucp")
	assert.Equal(t, []string{"ucp-resolve", "UCP", "averbs"}, []string{written("ucp-resolve"), written("ucp"), written("averbs")})
}
