package testenv

import (
	"testing"

	"github.com/gucx/gucx/internal/race"
)

// RaceEnabled reports whether the build has the race detector.
const RaceEnabled = race.Enabled

// AllocRuns is the number of times that NoAllocs calls the operation.
const AllocRuns = 200

// NoAllocs fails the test if op allocates. The race detector itself allocates, so in a race build op runs once and
// nothing is checked.
func NoAllocs(t testing.TB, name string, op func()) {
	t.Helper()
	if RaceEnabled {
		op()
		return
	}
	if n := LeastAllocs(AllocRuns, op); n != 0 {
		t.Errorf("%s: %v allocations per operation, want 0", name, n)
	}
}

// allocAttempts is the number of measurements of which LeastAllocs returns the least.
const allocAttempts = 3

// LeastAllocs is testing.AllocsPerRun, which counts the allocations of all goroutines of the process. So if there are any, it
// measures again: those of op are counted each time unless they end, as those of a pool that grows, and those of a goroutine that a busy
// machine has delayed until now are not.
func LeastAllocs(runs int, op func()) float64 {
	n := testing.AllocsPerRun(runs, op)
	for i := 1; i < allocAttempts && n != 0; i++ {
		n = min(n, testing.AllocsPerRun(runs, op))
	}
	return n
}
