package bulk

import (
	"sync"
	"time"
)

// Measure returns the rate, in bytes per second, at which a CPU of this machine copies data
// in its caches. The first call measures the rate for the process, in about 50 us on an idle
// machine. Several goroutines may call Measure. The result is between minRate and maxRate, or
// 0 if the resolution of the clock is too low.
func Measure() uint64 { return measured() }

var measured = sync.OnceValue(measure)

// Lengths of the measured copies in bytes. The difference of their times does not include the
// time of the call and the clock. Measure uses the minimum of several runs, because other
// processes and interrupts only add time.
const (
	measureShort = 16 << 10
	measureLong  = 128 << 10
	measureRuns  = 8
)

func measure() uint64 {
	src, dst := make([]byte, measureLong), make([]byte, measureLong)
	for i := range src { // allocates every page
		src[i], dst[i] = byte(i), 1
	}
	return Rate(measureLong-measureShort, leastOf(dst, src)-leastOf(dst[:measureShort], src[:measureShort]))
}

// Limits of a rate, in bytes per second: a CPU copies between 100 MB/s and 10 TB/s in its
// caches. A rate outside means that the resolution of the clock is too low or that the
// goroutine was preempted.
const (
	minRate = 1e8
	maxRate = 1e13
)

// Rate returns the rate, in bytes per second, of a copy of bytes bytes in time took, limited to
// minRate and maxRate. It returns 0 if took is not positive, because the resolution of the
// clock is too low.
func Rate(bytes uint64, took time.Duration) uint64 {
	if took <= 0 {
		return 0
	}
	return min(max(bytes*uint64(time.Second)/uint64(took), minRate), maxRate)
}

// leastOf returns the minimum time of several copies.
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
