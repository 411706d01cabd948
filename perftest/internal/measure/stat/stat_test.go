package stat

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestDigest_KnownDistribution(t *testing.T) {
	samples := make([]uint64, 0, 1000)
	for i := range uint64(1000) {
		samples = append(samples, 1000-i) // 1..1000, in descending order
	}
	d := NewDigest(samples, 1)
	assert.InDelta(t, 500, d.Percentile(50), 0)
	assert.InDelta(t, 990, d.Percentile(99), 0)
	assert.InDelta(t, 1000, d.Percentile(100), 0)
	assert.InDelta(t, 1000, d.Max(), 0)
	assert.Equal(t, int64(1000), d.Count())
}

func TestDigest_EdgeCases(t *testing.T) {
	assert.Zero(t, NewDigest(nil, 1).Percentile(50))
	assert.Zero(t, NewDigest(nil, 1).Count())
	assert.Zero(t, NewDigest([]uint64{0, 0}, 1).Percentile(99))
	assert.Equal(t, int64(2), NewDigest([]uint64{0, 0}, 1).Count())
	assert.InDelta(t, 1, NewDigest([]uint64{1}, 1).Percentile(50), 0)
	assert.InEpsilon(t, 5e12, NewDigest([]uint64{3, 5e12}, 1).Max(), 1e-3)
}

func TestDigest_PercentilesWithinPrecision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		samples := rapid.SliceOfN(rapid.Uint64Range(1, 1<<40), 1, 300).Draw(t, "samples")
		p := rapid.SampledFrom([]float64{50, 90, 99, 100}).Draw(t, "p")
		got := NewDigest(samples, 1).Percentile(p)

		sorted := slices.Sorted(slices.Values(samples))
		rank := min(int(p/100*float64(len(sorted))+0.5), len(sorted))
		want := float64(sorted[max(rank, 1)-1])
		require.InEpsilon(t, want, got, 2e-3)
	})
}

// TestDigest_PercentilesUpToMaximum: no percentile exceeds the largest value, also if it is interpolated.
func TestDigest_PercentilesUpToMaximum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		samples := rapid.SliceOfN(rapid.Uint64Range(0, 10_000), 1, 30).Draw(t, "samples")
		d := NewDigest(samples, rapid.SampledFrom([]float64{1, 26, 100}).Draw(t, "step"))
		last := 0.0
		for _, p := range []float64{1, 50, 99, 100} {
			v := d.Percentile(p)
			require.LessOrEqual(t, last, v)
			require.LessOrEqual(t, v, d.Max())
			last = v
		}
	})
}

// TestDigest_InterpolatesBetweenClockSteps measures intervals of a known length with a clock that advances in
// steps.
func TestDigest_InterpolatesBetweenClockSteps(t *testing.T) {
	const step = 26
	rnd := rand.New(rand.NewPCG(1, 2))
	for length := 20.0; length < 120; length += 3.7 {
		samples := make([]uint64, 10000)
		at := 0.0
		for i := range samples {
			from := math.Floor(at / step)
			at += length
			samples[i] = uint64(step * (math.Floor(at/step) - from))
			at += 7.3 + 5*rnd.Float64() // the time between intervals
		}
		got := NewDigest(samples, step).Percentile(50)
		assert.InDelta(t, length, got, step/8.0, "interval of %v ticks", length)
	}
}

func TestDigest_LongValuesAreNotInterpolated(t *testing.T) {
	d := NewDigest([]uint64{10000, 10000, 10010}, 26)
	assert.InDelta(t, 10000, d.Percentile(50), 10)
	assert.Zero(t, NewDigest(nil, 26).Percentile(50))
	assert.GreaterOrEqual(t, NewDigest([]uint64{0, 0, 0}, 26).Percentile(1), 0.0)
}

func TestDigest_Bins(t *testing.T) {
	d := NewDigest([]uint64{0, 1, 100, 101, 5000}, 1)
	bins := d.Bins(func(ticks float64) float64 { return ticks / 2 })
	require.Len(t, bins, 3)
	assert.Equal(t, Bin{Lo: 0, Hi: 1, Count: 2}, bins[0])
	assert.Equal(t, int64(2), bins[1].Count)
	assert.InEpsilon(t, math.Pow(2, 0.25), bins[1].Hi/bins[1].Lo, 1e-9)
	assert.LessOrEqual(t, bins[2].Lo, 2500.0)
	assert.Greater(t, bins[2].Hi, 2500.0)
	assert.Empty(t, NewDigest(nil, 1).Bins(func(v float64) float64 { return v }))
}

func TestMedian(t *testing.T) {
	assert.Zero(t, Median(nil))
	assert.InDelta(t, 2, Median([]float64{9, 1, 2}), 0)
	assert.InDelta(t, 2.5, Median([]float64{1, 2, 3, 9}), 0)
	in := []float64{3, 1, 2}
	Median(in)
	assert.Equal(t, []float64{3, 1, 2}, in)
}

func TestPaired_CancelsCommonChanges(t *testing.T) {
	// In the second half all times are tripled; the difference of the layers is always 5.
	lower := []float64{100, 101, 100, 300, 302, 301}
	upper := []float64{105, 106, 105, 305, 307, 306}
	d := Paired(upper, lower)
	assert.InDelta(t, 5, d.Median, 1e-9)
	assert.InDelta(t, 100*5/200.5, d.Percent, 1e-9)
	assert.InDelta(t, 5, d.Lo, 1e-9)
	assert.InDelta(t, 5, d.Hi, 1e-9)
	assert.Zero(t, Paired(nil, nil))
}

// For about one in twenty of two hundred series of twenty values, the interval does not contain the median of
// the distribution. The series are the same in each run.
func TestInterval_ContainsTheMedian(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	const series = 200
	missed := 0
	for range series {
		values := make([]float64, 20)
		for i := range values {
			values[i] = 10 + rnd.NormFloat64()
		}
		lo, hi := Interval(values)
		require.Less(t, lo, hi)
		require.True(t, lo <= Median(values) && Median(values) <= hi)
		if lo > 10 || hi < 10 {
			missed++
		}
	}
	assert.InDelta(t, 0.05*series, missed, 0.04*series)
}

func TestInterval_FewValuesHaveNone(t *testing.T) {
	lo, hi := Interval([]float64{1, 2, 3, 4, 5})
	assert.Zero(t, lo)
	assert.Zero(t, hi)
	values := []float64{6, 1, 5, 2, 4, 3}
	lo, hi = Interval(values)
	assert.Positive(t, lo)
	assert.LessOrEqual(t, hi, 6.0)
	assert.Equal(t, []float64{6, 1, 5, 2, 4, 3}, values)
}
