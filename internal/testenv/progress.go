package testenv

import (
	"runtime"
	"testing"
	"time"
)

// ProgressWithin calls step until it returns true, and fails the test after limit. It
// yields the processor between calls, so that peers which are goroutines of this process
// advance also with GOMAXPROCS=1; how many calls a slow machine takes nobody knows. limit
// is a watchdog, not a wait: choose it far above what the work takes. It must be called
// by the test's own goroutine, which therefore owns what step drives.
func ProgressWithin(t testing.TB, limit time.Duration, step func() bool) {
	t.Helper()
	const stepsPerLook = 64 // a look at the clock costs more than an idle step
	for start := time.Now(); time.Since(start) < limit; {
		for range stepsPerLook {
			if step() {
				return
			}
			runtime.Gosched()
		}
	}
	t.Fatalf("no end within %v", limit)
}
