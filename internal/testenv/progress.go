package testenv

import (
	"runtime"
	"testing"
	"time"
)

// stepsPerLook is how many steps ProgressWithin takes between two looks at the clock, which
// cost more than an idle step.
const stepsPerLook = 64

// parkTime is how long ProgressWithin gives up the processor after each stepsPerLook steps.
// It is about as short as the kernel's timers are.
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
	for start := time.Now(); time.Since(start) < limit; time.Sleep(parkTime) {
		for range stepsPerLook {
			if step() {
				return
			}
			runtime.Gosched()
		}
	}
	t.Fatalf("no end within %v", limit)
}
