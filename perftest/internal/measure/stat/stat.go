// Package stat computes the values of a result from raw samples.
package stat

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"
	gstat "gonum.org/v1/gonum/stat"
)

// digits is the precision of a histogram: values below 2048 ticks are exact, others have an error below 0.1 percent.
const digits = 3

// Digest is the distribution of samples in ticks.
type Digest struct {
	h    *hdrhistogram.Histogram
	step float64
}

// NewDigest counts samples. It does not store them. step is the step of the clock in ticks, at least 1.
func NewDigest(samples []uint64, step float64) *Digest {
	top := uint64(2)
	if len(samples) > 0 {
		top = max(top, slices.Max(samples))
	}
	h := hdrhistogram.New(1, int64(top), digits)
	for _, s := range samples {
		// The value is in range by construction, so this cannot fail.
		_ = h.RecordValue(int64(s))
	}
	return &Digest{h: h, step: step}
}

// coarse is the number of clock steps from which on a value needs no interpolation.
const coarse = 200

// Percentile returns the value that p percent (0..100) of the samples do not
// exceed; 0 without samples.
//
// A sample is the difference of two readings of a clock that goes in steps, so an
// interval of 2.3 steps gives 2 or 3 of them, in a proportion that tells the
// fraction. Small values are therefore interpolated as the percentile of grouped
// data, in a group one step wide around the sample, but not above the largest sample.
func (d *Digest) Percentile(p float64) float64 {
	v := float64(d.h.ValueAtQuantile(p))
	if d.step <= 1 || v > coarse*d.step || d.Count() == 0 {
		return v
	}
	lo, hi := v-d.step/2, v+d.step/2
	below, inside := d.count(lo, hi)
	rank := p / 100 * float64(d.Count())
	return min(d.Max(), max(0, lo+d.step*min(1, max(0, (rank-below)/inside))))
}

// count returns the number of samples below lo, and from there up to hi.
func (d *Digest) count(lo, hi float64) (below, inside float64) {
	for _, bar := range d.h.Distribution() {
		switch v := float64(bar.From); {
		case v < lo:
			below += float64(bar.Count)
		case v <= hi:
			inside += float64(bar.Count)
		default:
			return below, inside
		}
	}
	return below, inside
}

// Bin is the number of samples that are at least Lo and below Hi.
type Bin struct {
	Lo, Hi float64
	Count  int64
}

// binsPerOctave makes bins 19 percent wide.
const binsPerOctave = 4

// Bins returns the histogram of the samples after scale, without empty bins, in ascending order. All digests have the
// same bins: the bounds are powers of the fourth root of two, and the first bin contains all values below 1.
func (d *Digest) Bins(scale func(float64) float64) (bins []Bin) {
	counts := map[int]int64{}
	for _, bar := range d.h.Distribution() {
		if bar.Count > 0 {
			counts[bin(scale(float64(bar.From)))] += bar.Count
		}
	}
	for _, i := range slices.Sorted(maps.Keys(counts)) {
		b := Bin{Lo: bound(i), Hi: bound(i + 1), Count: counts[i]}
		if i == belowOne {
			b.Lo = 0
		}
		bins = append(bins, b)
	}
	return bins
}

// belowOne is the index of the first bin.
const belowOne = -1

// bin returns the index of the bin of a value.
func bin(v float64) int {
	if v < 1 {
		return belowOne
	}
	return int(math.Floor(binsPerOctave * math.Log2(v)))
}

// bound returns the lower bound of a bin.
func bound(index int) float64 { return math.Exp2(float64(index) / binsPerOctave) }

// Max returns the largest sample; 0 without samples.
func (d *Digest) Max() float64 { return float64(d.h.Max()) }

// Count returns the number of samples.
func (d *Digest) Count() int64 { return d.h.TotalCount() }

// Median returns the median of values, interpolated between the middle two; 0 without values. It does not change the
// slice.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n%2 == 1 {
		return gstat.Quantile(0.5, gstat.Empirical, sorted, nil)
	}
	return gstat.Mean(sorted[n/2-1:n/2+1], nil)
}

// Difference is the difference between two series.
type Difference struct {
	Median  float64
	Percent float64 // Median as a percentage of the median of the lower series
	Lo, Hi  float64 // bounds of Median: see Interval
}

// Paired compares two series of equal length value by value. Rounds that follow each other are in the same state of the
// machine, so effects on both cancel in the difference. Without values the result is 0.
func Paired(upper, lower []float64) (d Difference) {
	diffs := make([]float64, len(upper))
	for i := range upper {
		diffs[i] = upper[i] - lower[i]
	}
	d.Median = Median(diffs)
	if base := Median(lower); base > 0 {
		d.Percent = 100 * d.Median / base
	}
	d.Lo, d.Hi = Interval(diffs)
	return d
}

const (
	// leastValues is the minimum number of values for the interval of a median: five values are all on one side of the
	// median with a probability of 2 * 0.5^5, which is more than 5 percent.
	leastValues = 6
	resamples   = 1000
	tail        = resamples * 25 / 1000 // share of the resamples outside of the interval, on each side
)

// Interval returns bounds of the median of values with a confidence of 95 percent, by the bootstrap: the medians of
// samples of equal length, drawn from values with replacement (Efron 1979, percentile method). All calls use the same
// draws. With fewer than six values both are 0.
func Interval(values []float64) (lo, hi float64) {
	if len(values) < leastValues {
		return 0, 0
	}
	draw := rand.New(rand.NewPCG(1, 2))
	sample := make([]float64, len(values))
	medians := make([]float64, resamples)
	for i := range medians {
		for j := range sample {
			sample[j] = values[draw.IntN(len(values))]
		}
		medians[i] = Median(sample)
	}
	slices.Sort(medians)
	return medians[tail], medians[resamples-1-tail]
}
