package stats

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestHistogram_Bounds(t *testing.T) {
	for _, x := range []struct {
		d    time.Duration
		want int
	}{
		{-1, 0}, {0, 0}, {LeastBound - 1, 0}, {LeastBound, 1}, {2*LeastBound - 1, 1}, {2 * LeastBound, 2},
		{Bound(NumBuckets-2) - 1, NumBuckets - 2}, {Bound(NumBuckets - 2), NumBuckets - 1}, {math.MaxInt64, NumBuckets - 1},
	} {
		var h Histogram
		h.Observe(x.d)
		v := h.Load()
		require.Equal(t, uint64(1), v.Buckets[x.want], "%v in %v", x.d, v.Buckets)
		require.Equal(t, uint64(1), v.Count())
		require.Equal(t, uint64(max(x.d, 0)), v.SumNS)
	}
	assert.EqualValues(t, math.MaxInt64, Bound(NumBuckets-1))
}

// TestHistogram_Quantile: a quantile is above the true one, and at most twice that.
func TestHistogram_Quantile(t *testing.T) {
	assert.Zero(t, new(Histogram).Load().Quantile(0.5))
	rapid.Check(t, func(t *rapid.T) {
		var h Histogram
		times := rapid.SliceOfN(rapid.Int64Range(int64(LeastBound), int64(time.Second)), 1, 100).Draw(t, "times")
		for _, d := range times {
			h.Observe(time.Duration(d))
		}
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		bound := h.Load().Quantile(q)
		below, belowHalf := 0, 0
		for _, d := range times {
			if time.Duration(d) < bound {
				below++
			}
			if time.Duration(d) < bound/2 {
				belowHalf++
			}
		}
		need := q * float64(len(times))
		if float64(below) < need {
			t.Fatalf("%d of %d are below %v", below, len(times), bound)
		}
		if float64(belowHalf) >= need && need > 0 {
			t.Fatalf("%d of %d are below half of %v", belowHalf, len(times), bound)
		}
	})
}

func TestNode_Histogram(t *testing.T) {
	root := New("worker")
	var h Histogram
	root.Child("latency").AddHistogram("put", &h)
	h.Observe(time.Microsecond)
	text, err := json.Marshal(root.Snapshot())
	require.NoError(t, err)
	var back Snapshot
	require.NoError(t, json.Unmarshal(text, &back))
	for path, v := range back.AllHistograms() {
		assert.Equal(t, "worker/latency.put", path)
		assert.Equal(t, Bound(3), v.Quantile(1)) // 1.024 us
	}
	n := 0
	for range back.AllHistograms() {
		n++
	}
	assert.Equal(t, 1, n)
}
