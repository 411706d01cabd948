package report

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/perftest/internal/measure/result"
)

func TestHistograms(t *testing.T) {
	with := func(layer string, bins ...result.Bin) result.Record {
		r := latency(layer, 8, 100, "")
		r.Histogram = bins
		return r
	}
	all := []result.Record{
		with("uct", result.Bin{LoNS: 90, HiNS: 107, Count: 600}, result.Bin{LoNS: 107, HiNS: 128, Count: 400}),
		with("ucp", result.Bin{LoNS: 107, HiNS: 128, Count: 9998}, result.Bin{LoNS: 1000, HiNS: 1190, Count: 1}, result.Bin{LoNS: 2e6, HiNS: 2.4e6, Count: 1}),
		latency("verbs", 8, 100, ""),
	}
	for _, format := range []string{"table", "md"} {
		var b bytes.Buffer
		require.NoError(t, Write(&b, format, run, all))
		assert.Contains(t, b.String(), "put_lat of 8 B over rc: share of the operations by their time")
		assert.Regexp(t, `90\.0 .* 107 .* 60\.00 █{6}[^█]`, b.String())
		assert.Regexp(t, `107 .* 128 .* 40\.00 █{4} .* 99\.98 █{10}`, b.String())
		assert.Regexp(t, `1000 .* 2\.4ms .* 0\.02`, b.String(), "rare values must be in one row")
	}
	var b bytes.Buffer
	require.NoError(t, Write(&b, "table", run, all[2:]))
	assert.NotContains(t, b.String(), "share of the operations")
}

func TestWrite_RankReplacesP99(t *testing.T) {
	ranked := run
	ranked.Settings.Rank = 99.99
	r := latency("ucp", 8, 100, "")
	r.RankNS = 777
	var b bytes.Buffer
	require.NoError(t, Write(&b, "table", ranked, []result.Record{r}))
	assert.Regexp(t, `Total\s+p99\.99\s+Mean`, b.String())
	assert.Contains(t, b.String(), " 777 ")
	b.Reset()
	require.NoError(t, Write(&b, "table", run, []result.Record{r}))
	assert.Regexp(t, `Total\s+p99\s+p99\.9\s+Mean`, b.String())
}
