// Package tick is a clock for intervals of tens of nanoseconds.
//
// Now reads the processor's constant-rate counter: RDTSC on amd64 (Intel SDM
// volume 2B), CNTVCT_EL0 on arm64 (Arm ARM, D19.12). Where that counter is not
// known to be invariant, Now falls back to the monotonic clock of the operating
// system. Calibrate measures the rate against that clock.
//
//	c, err := tick.Calibrate()
//	a := tick.Now()
//	work()
//	ns := c.NS(tick.Now() - a)
//
// A reading waits until all earlier loads have their values, by a fence before it. Stores may still be on
// their way to the cache. Clock.Cost is the time of a reading with its fence.
package tick

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Clock converts ticks to time. Make one with Calibrate.
type Clock struct {
	// Source is "tsc", "cntvct" or "monotonic".
	Source string
	// PerNS is ticks per nanosecond.
	PerNS float64
	// Step is the step of the counter in ticks, 1 unless readings show otherwise. Some CPUs and virtual machines have
	// steps of 10 ns.
	Step float64
	// Cost is the median time between two consecutive readings, in nanoseconds: the part of the clock in every measured
	// interval.
	Cost float64
}

// ErrUnsteady is the error of two consecutive calibrations with different rates.
var ErrUnsteady = errors.New("tick counter and monotonic clock drift apart")

const (
	calibrateSpan = 20 * time.Millisecond
	// tolerance is the accepted relative difference between two calibrations: 0.1 percent is less than the precision of
	// printed results.
	tolerance = 1e-3
	attempts  = 5
)

// calibrated is the clock of this process after Calibrate.
var calibrated struct {
	mu    sync.Mutex
	clock *Clock
}

// Calibrate measures the rate of the counter and the cost of reading it, once per process: later calls return the same
// clock. It takes about 40 ms, and longer on a busy machine.
func Calibrate() (*Clock, error) {
	calibrated.mu.Lock()
	defer calibrated.mu.Unlock()
	if calibrated.clock != nil {
		return calibrated.clock, nil
	}
	c, err := calibrate()
	if err == nil {
		calibrated.clock = c
	}
	return c, err
}

func calibrate() (*Clock, error) {
	last := rate(calibrateSpan)
	for range attempts {
		next := rate(calibrateSpan)
		if within(last, next, tolerance) {
			c := &Clock{Source: source(), PerNS: (last + next) / 2}
			c.measureReading()
			return c, nil
		}
		last = next
	}
	return nil, fmt.Errorf("calibrate %s: %w", source(), ErrUnsteady)
}

// NS converts an interval in ticks to nanoseconds.
func (c *Clock) NS(ticks uint64) float64 { return float64(ticks) / c.PerNS }

func within(a, b, tol float64) bool {
	d := a - b
	if d < 0 {
		d = -d
	}
	return d <= tol*max(a, b)
}

// rate returns ticks per nanosecond over about span.
func rate(span time.Duration) float64 {
	start := time.Now()
	t0, m0 := pair(start)
	time.Sleep(span)
	t1, m1 := pair(start)
	return float64(t1-t0) / float64(m1-m0)
}

// pair reads both clocks at nearly the same time: it makes several tries and uses the one with the smallest difference
// of the two counter readings around the clock reading.
func pair(start time.Time) (ticks uint64, mono time.Duration) {
	best := ^uint64(0)
	for range 16 {
		a := Now()
		m := time.Since(start)
		b := Now()
		if b-a < best {
			best, ticks, mono = b-a, a+(b-a)/2, m
		}
	}
	return ticks, mono
}

// Resolution returns Step in nanoseconds: smaller differences of intervals cannot be measured.
func (c *Clock) Resolution() float64 { return c.Step / c.PerNS }

const (
	readings = 1 << 16
	// spins is the longest delay between two readings, in dependent multiplications: some ten steps of 10 ns.
	spins = 64
)

// measureReading sets Step and Cost.
func (c *Clock) measureReading() {
	diffs := make([]uint64, readings)
	last := Now()
	for i := range diffs {
		t := Now()
		diffs[i] = t - last
		last = t
	}
	slices.Sort(diffs)
	usual := diffs[:len(diffs)*9/10] // the longest are interrupts
	sum := uint64(0)
	for _, d := range usual {
		sum += d
	}
	c.Cost = float64(sum) / float64(len(usual)) / c.PerNS
	c.Step = step(delayed(diffs))
}

// delayed fills diffs with differences of readings with different delays between them, and returns it sorted.
func delayed(diffs []uint64) []uint64 {
	for i := range diffs {
		a := Now()
		runtime.KeepAlive(spin(i % spins))
		diffs[i] = Now() - a
	}
	slices.Sort(diffs)
	return diffs
}

// spin takes a time that grows with n in steps of a few clock cycles.
//
//go:noinline
func spin(n int) (x uint64) {
	x = uint64(n)
	for range n {
		x *= 0x9e3779b97f4a7c15
	}
	return x
}

const (
	// jitter is the variation in ticks of equal differences if the counter is scaled.
	jitter = 2
	// rare is the share of samples below which a value is taken for an outlier.
	rare = 1e-3
	// minClusters is the number of different values that is needed to detect steps.
	minClusters = 3
)

// step returns the usual distance between neighbours among frequent values: if the counter has no larger steps, all
// multiples of 1 occur; otherwise only multiples of the step.
func step(sorted []uint64) float64 {
	centers := clusters(sorted)
	if len(centers) < minClusters {
		return 1
	}
	gaps := make([]float64, len(centers)-1)
	for i := range gaps {
		gaps[i] = centers[i+1] - centers[i]
	}
	slices.Sort(gaps)
	return max(1, gaps[len(gaps)/2])
}

// clusters returns the middle of each group of frequent values that differ by at most jitter.
func clusters(sorted []uint64) (centers []float64) {
	var first, last uint64
	for i := 0; i < len(sorted); {
		v := sorted[i]
		n, _ := slices.BinarySearch(sorted[i:], v+1)
		i += n
		if float64(n) < rare*float64(len(sorted)) {
			continue
		}
		if len(centers) > 0 && v-last <= jitter {
			last = v
			centers[len(centers)-1] = float64(first+last) / 2
			continue
		}
		first, last = v, v
		centers = append(centers, float64(v))
	}
	return centers
}
