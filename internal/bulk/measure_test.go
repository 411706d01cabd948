package bulk

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestMeasure checks that all calls in a process return the same rate, also from several goroutines.
func TestMeasure(t *testing.T) {
	const askers = 4
	got := make(chan uint64, askers)
	for range askers {
		go func() { got <- Measure() }()
	}
	bw := Measure()
	for range askers {
		assert.Equal(t, bw, <-got)
	}
	t.Logf("%.1f GB/s", float64(bw)/1e9)
}

func TestRate(t *testing.T) {
	const bytes = measureLong - measureShort
	for _, tc := range []struct {
		name  string
		bytes uint64
		took  time.Duration
		want  uint64
	}{
		{"as on a desk", bytes, 10 * time.Microsecond, 11_468_800_000},
		{"a second", 1 << 30, time.Second, 1 << 30},
		{"rounded down", 2e9, 3 * time.Second, 666_666_666},
		{"no time", bytes, 0, 0},
		{"less than no time", bytes, -time.Microsecond, 0},
		{"one tick of the clock", bytes, 1, maxRate},
		{"the most", 1e4, 1, maxRate},
		{"the least", 1e8, time.Second, minRate},
		{"taken away for a second", bytes, time.Second, minRate},
		{"taken away for ever", bytes, math.MaxInt64, minRate},
		{"nothing", 0, time.Second, minRate},
	} {
		t.Run(tc.name, func(t *testing.T) { assert.Equal(t, tc.want, Rate(tc.bytes, tc.took)) })
	}
}
