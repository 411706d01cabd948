package stats

import (
	"math"
	"math/bits"
	"time"
)

// Bounds of the buckets of a Histogram: bucket k counts durations below LeastBound << k that are in no earlier bucket. The
// last bucket counts all longer durations.
const (
	LeastBound = 128 * time.Nanosecond
	NumBuckets = 28 // the last bound is 8.6 s
)

// Histogram counts durations in buckets. The bounds of the buckets are powers of two, so a quantile is at most twice the
// true value. The zero value is empty. Only one goroutine at a time, the owner, may call Observe. Any goroutine may call
// Load.
type Histogram struct {
	buckets [NumBuckets]Counter
	sum     Counter // in nanoseconds
}

// Observe counts a duration. A negative duration counts as 0.
func (h *Histogram) Observe(d time.Duration) {
	d = max(d, 0)
	h.buckets[min(bits.Len64(uint64(d/LeastBound)), NumBuckets-1)].Inc()
	h.sum.Add(uint64(d))
}

// Load returns a copy of the histogram. In another goroutine than the owner's the copy may lack the latest durations.
func (h *Histogram) Load() HistogramValue {
	v := HistogramValue{SumNS: h.sum.Load(), Buckets: make([]uint64, NumBuckets)}
	for k := range v.Buckets {
		v.Buckets[k] = h.buckets[k].Load()
	}
	return v
}

// HistogramValue is a copy of a Histogram.
type HistogramValue struct {
	Name    string   `json:"name"`
	SumNS   uint64   `json:"sum_ns"`  // sum of all durations, in nanoseconds
	Buckets []uint64 `json:"buckets"` // number of durations in each bucket; see [Bound]
}

// Bound returns the upper bound of the durations in bucket k. For the last bucket, which has no bound, it returns
// [math.MaxInt64].
func Bound(k int) time.Duration {
	if k >= NumBuckets-1 {
		return math.MaxInt64
	}
	return LeastBound << k
}

// Count returns the number of observed durations.
func (v HistogramValue) Count() (n uint64) {
	for _, b := range v.Buckets {
		n += b
	}
	return n
}

// Quantile returns an upper bound of the q-quantile of the durations, at most twice the true value. q is from 0 to 1. It
// returns 0 if there are no durations.
func (v HistogramValue) Quantile(q float64) time.Duration {
	rest := uint64(math.Ceil(q * float64(v.Count())))
	if rest == 0 && v.Count() == 0 {
		return 0
	}
	for k, n := range v.Buckets {
		if n >= rest {
			return Bound(k)
		}
		rest -= n
	}
	return math.MaxInt64
}

// AddHistogram adds a histogram to n. n must not have a histogram with the same name yet. The node refers to h until the
// node is removed.
func (n *Node) AddHistogram(name string, h *Histogram) {
	n.tree.Lock()
	defer n.tree.Unlock()
	n.histograms = append(n.histograms, namedHistogram{name, h})
}

type namedHistogram struct {
	name      string
	histogram *Histogram
}
