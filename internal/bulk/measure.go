package bulk

import (
	"sync"
	"time"
)

// Measure is how many bytes per second a processor of this machine copies in its caches, as what
// is sent soon after it was written: measured at the first call, for the process, by any
// goroutine, in some 50 us on an idle machine. 0: the clock is too coarse.
func Measure() uint64 { return measured() }

var measured = sync.OnceValue(measure)

// Lengths of the copies that are measured, in bytes: their difference leaves out what a call and
// the clock take. The least of some runs counts, as neighbours and interrupts only add.
const (
	measureShort = 16 << 10
	measureLong  = 128 << 10
	measureRuns  = 8
)

func measure() uint64 {
	src, dst := make([]byte, measureLong), make([]byte, measureLong)
	for i := range src { // every page is there
		src[i], dst[i] = byte(i), 1
	}
	more := leastOf(dst, src) - leastOf(dst[:measureShort], src[:measureShort])
	if more <= 0 {
		return 0
	}
	return (measureLong - measureShort) * uint64(time.Second) / uint64(more)
}

// leastOf is the least time of some copies.
func leastOf(dst, src []byte) (least time.Duration) {
	for range measureRuns {
		start := time.Now()
		Copy(dst, src)
		if took := time.Since(start); least == 0 || took < least {
			least = took
		}
	}
	return least
}
