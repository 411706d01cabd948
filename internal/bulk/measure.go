package bulk

import (
	"sync"
	"time"
)

// Measure is how many bytes per second a processor of this machine copies in its caches, as what
// is sent soon after it was written: measured at the first call, for the process, by any
// goroutine, in some 50 us on an idle machine. 0: the clock is too coarse; otherwise from minRate to
// maxRate.
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
	return Rate(measureLong-measureShort, leastOf(dst, src)-leastOf(dst[:measureShort], src[:measureShort]))
}

// Bounds of a rate, in bytes per second: a processor copies between 100 MB/s and 10 TB/s in its
// caches. What is outside is of a clock that hardly ticked, or of a processor that was taken away.
const (
	minRate = 1e8
	maxRate = 1e13
)

// Rate is how many bytes per second those are that took so long, within the bounds. 0: no time
// passed, or less than none, as the clock is too coarse.
func Rate(bytes uint64, took time.Duration) uint64 {
	if took <= 0 {
		return 0
	}
	return min(max(bytes*uint64(time.Second)/uint64(took), minRate), maxRate)
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
