package testenv

import (
	"runtime"
	"testing"
	"time"
)

const (
	firstSteps = 64 // calls of step before ProgressWithin first sleeps and reads the clock
	moreSteps  = 16 // and between later ones
)

// parkTime is how long ProgressWithin sleeps. A sleep is longer: the timers of the kernel have a slack of 50 us.
const parkTime = 20 * time.Microsecond

// ProgressWithin calls step until it returns true, and fails the test after limit. limit is a watchdog: choose it far
// above the time of the work. It must be called by the test's own goroutine, which therefore owns the workers that
// step uses.
//
// ProgressWithin yields between calls, so that peers that are goroutines of this process advance also with
// GOMAXPROCS=1. Now and then it sleeps: while each CPU has a goroutine that is ready, the runtime polls descriptors
// only each 10 ms (runtime/proc.go: findRunnable, sysmon), and connections wait for them. Other processes get the CPU
// meanwhile.
func ProgressWithin(t testing.TB, limit time.Duration, step func() bool) {
	t.Helper()
	ProgressOr(t, limit, step, func() string { return "" })
}

// ProgressOr is ProgressWithin whose failure shows the text that state returns. The test's own goroutine calls state,
// only after the limit.
func ProgressOr(t testing.TB, limit time.Duration, step func() bool, state func() string) {
	t.Helper()
	steps := firstSteps
	for start := time.Now(); time.Since(start) < limit; time.Sleep(parkTime) {
		for range steps {
			if step() {
				return
			}
			runtime.Gosched()
		}
		steps = moreSteps
	}
	t.Fatalf("not done within %v\n%s", limit, state())
}

// Progresser is a worker of package ucp.
type Progresser interface {
	Progress() int
	State() string
}

// ProgressBoth makes progress on two workers until ok returns true. After Watchdog the test fails and shows the state
// of both.
func ProgressBoth(t testing.TB, a, b Progresser, ok func() bool) {
	t.Helper()
	ProgressOr(t, Watchdog, func() bool {
		if ok() {
			return true
		}
		a.Progress()
		b.Progress()
		return ok()
	}, func() string { return "a: " + a.State() + "b: " + b.State() })
}
