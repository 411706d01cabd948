package stats

import (
	"math"
	"math/bits"
	"time"
)

// Bounds of the buckets of a Histogram: bucket k counts times below LeastBound << k, the last one all others.
const (
	LeastBound = 128 * time.Nanosecond
	NumBuckets = 28 // the last bound is 8.6 s
)

// Histogram counts how often something took how long. Bounds are powers of two, so that a value that is read from it is
// at most twice the true one. The zero value is empty. One goroutine at a time, the owner of what is measured, calls
// Observe; any may call Load.
type Histogram struct {
	buckets [NumBuckets]Counter
	sum     Counter // in nanoseconds
}

// Observe counts a time. One below 0 counts as 0.
func (h *Histogram) Observe(d time.Duration) {
	d = max(d, 0)
	h.buckets[min(bits.Len64(uint64(d/LeastBound)), NumBuckets-1)].Inc()
	h.sum.Add(uint64(d))
}

// Load copies the histogram; from another goroutine, perhaps without what was observed a moment ago.
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
	SumNS   uint64   `json:"sum_ns"`  // of all times, in nanoseconds
	Buckets []uint64 `json:"buckets"` // how many times were in each; see [Bound]
}

// Bound is the time below which all times of bucket k and of those before it are. The last bucket has no bound:
// [math.MaxInt64].
func Bound(k int) time.Duration {
	if k >= NumBuckets-1 {
		return math.MaxInt64
	}
	return LeastBound << k
}

// Count is how many times were observed.
func (v HistogramValue) Count() (n uint64) {
	for _, b := range v.Buckets {
		n += b
	}
	return n
}

// Quantile is a bound below which a share q, from 0 to 1, of the times are: at most twice the least one. 0 if nothing was
// observed.
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

// AddHistogram puts a histogram under a name, which must be new in n. The node refers to it until it is removed.
func (n *Node) AddHistogram(name string, h *Histogram) {
	n.tree.Lock()
	defer n.tree.Unlock()
	n.histograms = append(n.histograms, namedHistogram{name, h})
}

type namedHistogram struct {
	name      string
	histogram *Histogram
}
