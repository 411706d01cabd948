package timelimit

import (
	"runtime"
	"time"
)

// Await first calls done yields times without a sleep, which is enough for events within microseconds. Then
// it sleeps between two calls, each time twice as long, from pauseMin to pauseMax. A sleep counts at most
// pauseMost.
const (
	yields    = 100
	pauseMin  = 20 * time.Microsecond
	pauseMax  = time.Millisecond
	pauseMost = 10 * pauseMax
)

// Await calls done until it returns true, for at most d, and reports whether it has returned true. It blocks
// the calling goroutine, which runs done, and yields or sleeps between the calls. It calls done at least
// yields times, and after the last sleep.
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

// Poll calls progress until done returns true or the limit is reached, and reports whether done has returned
// true. It blocks the calling goroutine, which runs both. After a call of progress that returns 0, it checks
// the limit and yields.
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
