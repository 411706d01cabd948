package bench

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/perftest/internal/layers/layertest"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/measure/tick"
)

// laneWith returns a lane with given samples, in ticks.
func laneWith(t *testing.T, name string, post, flush, whole []uint64) *lane {
	c, err := layertest.Opener(layertest.None)(layer.Config{MemLen: 8})
	require.NoError(t, err)
	return &lane{name: name, conn: c, s: &samples{post: post, flush: flush, batches: whole}}
}

func TestRecords_SubtractTheLoopAndCompareRoundByRound(t *testing.T) {
	r := &Runner{
		Plan:  Plan{Rounds: 2, Fabric: "shm"},
		Clock: &tick.Clock{PerNS: 2, Step: 1},
		costs: map[int]cost{4: {post: 10, flush: 10, total: 20, plain: 4}},
		lanes: []*lane{
			// Two rounds of two windows of four operations.
			laneWith(t, "verbs", []uint64{110, 110, 110, 510}, []uint64{50, 50, 50, 90}, []uint64{328, 968}),
			laneWith(t, "uct", []uint64{126, 126, 126, 526}, []uint64{50, 50, 50, 90}, []uint64{392, 1032}),
		},
	}
	recs := r.records(Test{Name: "put_bw"}, 1<<20, pace{windows: 2, window: 4, every: 1}, r.lanes)
	require.Len(t, recs, 2)

	low := recs[0]
	assert.Equal(t, "put_bw", low.Test)
	assert.Equal(t, "shm", low.Fabric)
	assert.Equal(t, 16, low.Ops)
	assert.InDelta(t, (110-10)/2.0/4, low.PostNS, 1e-9)
	assert.InDelta(t, (510-10)/2.0/4, low.PostP99NS, 1e-9)
	assert.InDelta(t, (50-10)/2.0/4, low.FlushNS, 1e-9)
	assert.InDelta(t, (160-20)/2.0/4, low.P50NS, 1e-9)
	assert.InDelta(t, (600-20)/2.0/4, low.MaxNS, 1e-9)
	// Round 1: 328/2-4 = 160 ticks a window = 20 ns an operation; round 2: 60 ns.
	assert.InDelta(t, 40, low.LoopNS, 1e-9)
	assert.InDelta(t, 4/2.0/4, low.LoopCostNS, 1e-9, "4 ticks a window")
	assert.InDelta(t, 25e6, low.MsgPerS, 1e-3)
	assert.InDelta(t, 25e6, low.MiBPerS, 1e-3, "1 MiB each")
	assert.Empty(t, low.Over)

	high := recs[1]
	assert.Equal(t, "verbs", high.Over)
	assert.InDelta(t, 4, high.OverNS, 1e-9, "32 ticks a window in each round")
	assert.InDelta(t, 10, high.OverPct, 1e-9)
}

func TestRecords_NeverNegative(t *testing.T) {
	r := &Runner{Plan: Plan{Rounds: 1}, Clock: &tick.Clock{PerNS: 1, Step: 1},
		costs: map[int]cost{1: {post: 9, flush: 9, total: 18, plain: 9}},
		lanes: []*lane{laneWith(t, "verbs", []uint64{1}, []uint64{0}, []uint64{1})}}
	rec := r.records(Test{Name: "flush"}, 0, pace{windows: 1, window: 1, every: 1}, r.lanes)[0]
	assert.Zero(t, rec.P50NS)
	assert.Zero(t, rec.FlushNS)
	assert.Zero(t, rec.LoopNS)
	assert.Zero(t, rec.MsgPerS, "the rate must not be infinite")
}
