package compare

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestKeep(t *testing.T) {
	for _, c := range []struct {
		name      string
		all       []Pair
		kept      []Pair
		far, slow int
	}{
		{"none", nil, nil, 0, 0},
		{"all far", []Pair{{1, 1, 101}, {1, 1, 300}}, nil, 2, 0},
		{"at the thresholds", []Pair{{100, 100, 100}, {135, 135, 100}}, []Pair{{100, 100, 100}, {135, 135, 100}}, 0, 0},
		{"a far one is not the best", []Pair{{10, 10, 200}, {100, 100, 50}, {120, 130, 50}}, []Pair{{100, 100, 50}, {120, 130, 50}}, 1, 0},
		{"UCX slow", []Pair{{100, 100, 50}, {136, 100, 50}}, []Pair{{100, 100, 50}}, 0, 1},
		{"ours slow", []Pair{{100, 100, 50}, {100, 136, 50}}, []Pair{{100, 100, 50}}, 0, 1},
		{"a better one comes last", []Pair{{200, 100, 50}, {100, 100, 50}}, []Pair{{100, 100, 50}}, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			kept, far, slow := keep(c.all, 100)
			assert.ElementsMatch(t, c.kept, kept)
			assert.Equal(t, c.far, far, "far")
			assert.Equal(t, c.slow, slow, "slow")
		})
	}
}

func TestKeep_CountsEveryPairOnceAndLeavesThemAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ns := rapid.Float64Range(1, 1000)
		all := make([]Pair, rapid.IntRange(0, 30).Draw(t, "n"))
		for i := range all {
			all[i] = Pair{ns.Draw(t, "ucx"), ns.Draw(t, "ours"), ns.Draw(t, "probe")}
		}
		before := append([]Pair{}, all...)
		kept, far, slow := keep(all, 100)
		require.Equal(t, before, all)
		require.Equal(t, len(all), len(kept)+far+slow)
		for _, p := range kept {
			require.LessOrEqual(t, p.ProbeNS, 100.0)
		}
	})
}

func TestSummarize(t *testing.T) {
	at := Case{Metric: Time, Goal: 0.5, Size: 1000}
	pairs := []Pair{{100, 40, 50}, {110, 44, 60}, {120, 48, 70}, {1, 1, 400}, {900, 41, 55}}

	s := summarize(at, pairs, 100, nil)
	assert.Equal(t, Figure{110, 100, 120}, s.UCX)
	assert.Equal(t, Figure{44, 40, 48}, s.Ours)
	assert.Equal(t, Figure{60, 50, 70}, s.Probe)
	assert.InDelta(t, 0.4, s.Ratio, 1e-9)
	assert.True(t, s.Reached())
	assert.Equal(t, []int{3, 1, 1}, []int{s.Kept, s.Far, s.Slow})

	at.Metric, at.Goal = Rate, 2.6
	s = summarize(at, pairs, 100, nil)
	assert.InDelta(t, 1e3/110, s.UCX.Median, 1e-9, "millions in a second")
	assert.InDelta(t, 1e3/120, s.UCX.Min, 1e-9, "the slowest run is the smallest rate")
	assert.InDelta(t, 2.5, s.Ratio, 1e-9)
	assert.False(t, s.Reached())

	at.Metric = Bandwidth
	s = summarize(at, pairs, 100, nil)
	assert.InDelta(t, 1000.0/110, s.UCX.Median, 1e-9, "GB/s")
}

func TestSummarize_NothingNearReachesNothing(t *testing.T) {
	for _, m := range []Metric{Time, Rate} {
		s := summarize(Case{Metric: m, Goal: 0}, []Pair{{100, 1, 500}}, 100, nil)
		assert.False(t, s.Reached())
		assert.Equal(t, 1, s.Far)
	}
	failed := errors.New("x")
	assert.Equal(t, failed, summarize(Case{}, nil, 100, failed).Failed)
}
