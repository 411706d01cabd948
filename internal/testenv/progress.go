package testenv

import (
	"runtime"
	"testing"
	"time"
)

// firstSteps is how many steps ProgressWithin takes before it parks and looks at the clock,
// and moreSteps how many between two such looks.
const (
	firstSteps = 64
	moreSteps  = 16
)

// parkTime is how long ProgressWithin gives up the processor, which is longer in the end: the
// kernel's timers have a slack of 50 us.
const parkTime = 20 * time.Microsecond

// ProgressWithin calls step until it returns true, and fails the test after limit. It
// yields the processor between calls, so that peers which are goroutines of this process
// advance also with GOMAXPROCS=1; how many calls a slow machine takes nobody knows. Now and
// then it parks: as long as a goroutine is ready on each processor the runtime looks at
// descriptors each 10 ms only (runtime/proc.go: findRunnable, sysmon), and what connects
// waits for those; and other processes get the processor. limit is a watchdog, not a wait:
// choose it far above what the work takes. It must be called by the test's own goroutine,
// which therefore owns what step drives.
func ProgressWithin(t testing.TB, limit time.Duration, step func() bool) {
	t.Helper()
	ProgressOr(t, limit, step, func() string { return "" })
}

// ProgressOr is ProgressWithin for a step of which state describes what it waits for: the failure
// shows that. state is called by the test's own goroutine, and only after the limit.
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
	t.Fatalf("no end within %v\n%s", limit, state())
}
