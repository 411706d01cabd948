package tick

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCalibrate_AgreesWithTheMonotonicClock(t *testing.T) {
	c, err := Calibrate()
	require.NoError(t, err)

	start := time.Now()
	t0, m0 := pair(start)
	time.Sleep(10 * time.Millisecond)
	t1, m1 := pair(start)

	assert.InEpsilon(t, float64(m1-m0), c.NS(t1-t0), 0.02)
	assert.Contains(t, []string{"tsc", "cntvct", "monotonic"}, c.Source)
	assert.GreaterOrEqual(t, c.Step, 1.0)
	assert.Positive(t, c.Resolution())
	assert.Less(t, c.Resolution(), 1000.0)
	assert.GreaterOrEqual(t, c.Cost, 0.0)
	assert.Less(t, c.Cost, 5000.0)
}

func TestNow_IsMonotonic(t *testing.T) {
	last := Now()
	for range 100000 {
		now := Now()
		require.GreaterOrEqual(t, now, last)
		last = now
	}
}

func TestNow_DoesNotAllocate(t *testing.T) {
	assert.Zero(t, testing.AllocsPerRun(100, func() { Now() }))
}

func TestClock_Conversions(t *testing.T) {
	c := &Clock{PerNS: 2.5}
	assert.InDelta(t, 40, c.NS(100), 1e-9)
}

func TestWithin(t *testing.T) {
	assert.True(t, within(1.000, 1.0005, 1e-3))
	assert.True(t, within(1.0005, 1.000, 1e-3))
	assert.False(t, within(1.000, 1.002, 1e-3))
	assert.False(t, within(1.002, 1.000, 1e-3))
}

func TestStep(t *testing.T) {
	for _, c := range []struct {
		name   string
		period float64 // ticks of one step of the counter
		want   float64
	}{
		{"ones", 1, 1},
		{"twos", 2, 1},
		{"26", 26, 26},
		{"scaled", 25.96, 26},
	} {
		t.Run(c.name, func(t *testing.T) {
			var diffs []uint64
			for i := range 20000 {
				from := float64(i) * 0.37
				to := from + 20 + float64(i%97)
				read := func(at float64) uint64 { return uint64(math.Floor(at/c.period) * c.period) }
				diffs = append(diffs, read(to)-read(from))
			}
			slices.Sort(diffs)
			assert.InDelta(t, c.want, step(diffs), 0.5)
		})
	}
	assert.InDelta(t, 1, step(nil), 0)
	assert.InDelta(t, 1, step([]uint64{7, 7, 7}), 0)
}

func BenchmarkNow(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Now()
	}
}
