package machine

import (
	"slices"
	"sync/atomic"

	"golang.org/x/sys/cpu"

	"github.com/gucx/gucx/perftest/internal/measure/affinity"
	"github.com/gucx/gucx/perftest/internal/measure/tick"
)

const (
	probeRounds = 50   // batches; the result is the median
	probeTrips  = 1000 // round trips of a batch
)

// Probe returns the time in nanoseconds in which a cache line moves from one CPU to another, one
// way: the median over short batches. On virtual machines it shows whether the host has placed the
// two close to each other. a and b are different.
func Probe(c *tick.Clock, a, b int) (ns float64, err error) {
	var line struct {
		_   cpu.CacheLinePad
		seq atomic.Uint64
		_   cpu.CacheLinePad
	}
	const last = 2 * probeRounds * probeTrips
	// An echo that could not be bound to its CPU still replies, so that Probe does not hang.
	echoed := make(chan error, 1)
	go func() {
		undo, err := affinity.Thread(b)
		if err == nil {
			defer undo()
		}
		for odd := uint64(1); odd < last; odd += 2 {
			await(&line.seq, odd)
			line.seq.Store(odd + 1)
		}
		echoed <- err
	}()
	undo, err := affinity.Thread(a)
	if err == nil {
		defer undo()
	}
	batches := make([]uint64, probeRounds)
	for i := range batches {
		batches[i] = pingPong(&line.seq, uint64(i)*2*probeTrips)
	}
	if echo := <-echoed; err == nil {
		err = echo
	}
	slices.Sort(batches)
	return c.NS(batches[len(batches)/2]) / (2 * probeTrips), err
}

// pingPong does probeTrips round trips, starting at an even value, and returns the ticks.
func pingPong(seq *atomic.Uint64, from uint64) uint64 {
	start := tick.Now()
	for v := from; v < from+2*probeTrips; v += 2 {
		seq.Store(v + 1)
		await(seq, v+2)
	}
	return tick.Now() - start
}
