package testenv

import (
	"runtime"
	"testing"
)

// looks is the number of checks of Waits whether wait has returned too early. It yields between them.
const looks = 1000

// Waits fails the test if wait returns before release is called, or does not return after it. wait runs on another
// goroutine and must not use t; release runs on the goroutine of the test. If the other goroutine does not run in time,
// a wait that returns early may pass. A correct wait never fails the test.
func Waits(t testing.TB, wait, release func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		wait()
	}()
	returned := func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	}
	early := false
	for range looks {
		runtime.Gosched()
		if early = returned(); early {
			break
		}
	}
	release()
	if early {
		t.Fatalf("the wait returned before what it waits for")
	}
	ProgressWithin(t, Watchdog, returned)
}
