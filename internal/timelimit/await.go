package timelimit

import (
	"runtime"
	"time"
)

// Await looks so often without a pause: what takes microseconds is over by then. Then it sleeps
// between looks, twice as long each time. A sleep counts ten of the longest pauses at most.
const (
	yields    = 100
	pauseMin  = 20 * time.Microsecond
	pauseMax  = time.Millisecond
	pauseMost = 10 * pauseMax
)

// Await calls done until that returns true, for d at most, and reports whether it has. It blocks the
// calling goroutine, on which done runs, and yields or sleeps between the calls. done is called some
// 100 times at least, and after the last sleep.
func Await(d time.Duration, done func() bool) bool {
	for range yields {
		if done() {
			return true
		}
		runtime.Gosched()
	}
	limit := WithMost(d, pauseMost)
	for pause := pauseMin; ; pause = min(2*pause, pauseMax) {
		time.Sleep(pause)
		if done() {
			return true
		}
		if limit.Over() {
			return false
		}
	}
}

// Poll calls progress until done returns true, or until the wait is over, and reports whether it is
// done. It blocks the calling goroutine, on which both run, and yields after rounds in which progress
// has returned 0, nothing found. Only there it looks at the time.
func (l *Limit) Poll(done func() bool, progress func() int) bool {
	for !done() {
		if progress() == 0 {
			if l.Over() {
				return done()
			}
			runtime.Gosched()
		}
	}
	return true
}
