package uct

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCost_Time(t *testing.T) {
	c := Cost{Send: 5, Recv: 3, Latency: 40, Bandwidth: 50e9}
	for _, tc := range []struct {
		cost Cost
		n    uint64
		want uint64
	}{
		{Cost{}, 100, 0},
		{c, 0, 48_000},
		{c, 50, 49_000},
		{c, 1 << 20, 48_000 + 20_971_520},
		{Cost{Send: 1, Bandwidth: 50e9, SharedBandwidth: 25e9}, 50, 3_000},
		{Cost{Send: 1}, 1 << 40, 1_000},
		{c, math.MaxUint64, math.MaxUint64},
		{Cost{Send: math.MaxInt64, Bandwidth: 1}, 18_446_744, math.MaxUint64},
	} {
		assert.Equal(t, tc.want, tc.cost.Time(tc.n), "%+v for %d bytes", tc.cost, tc.n)
	}
}

func TestVariant_FollowsCaps(t *testing.T) {
	for v := range Variant(NumVariants) {
		a := &IfaceAttr{}
		switch v {
		case AtomicPost:
			a.Atomic.Post32 = AtomicSet(AtomicAdd)
		case AtomicFetch:
			a.Atomic.Fetch64 = AtomicSet(AtomicAdd)
		case QueueZcopy:
			a.Caps = CapQueue
		default:
			a.Caps = 1 << v
			assert.Equal(t, a.Caps.String(), v.String())
		}
		for w := range Variant(NumVariants) {
			assert.Equal(t, v == w, w.Claimed(a), "%v of an iface with %v only", w, v)
		}
		var all Costs
		for w := range all {
			all[w].Send = 7
		}
		a.Declare(all)
		var want Costs
		want[v].Send = 7
		assert.Equal(t, want, a.Costs)
	}
	assert.Equal(t, "unknown", Variant(NumVariants).String())
}
