package testenv

import (
	"testing"

	"github.com/gucx/gucx/internal/race"
)

// RaceEnabled says whether the race detector is built in.
const RaceEnabled = race.Enabled

// AllocRuns is how often NoAllocs calls the operation.
const AllocRuns = 200

// NoAllocs fails the test if op allocates. Under the race detector, which
// allocates by itself, op runs once and nothing is asserted.
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
