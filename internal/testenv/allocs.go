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
	if n := testing.AllocsPerRun(AllocRuns, op); n != 0 {
		t.Errorf("%s: %v allocations per operation, want 0", name, n)
	}
}
