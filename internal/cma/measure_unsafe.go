package cma

import (
	"os"
	"runtime"
	"sync"
	"time"
	"unsafe"
)

// Measured is what transfers cost on this machine.
type Measured struct {
	Call      time.Duration // of one, whatever its length; 0: it could not be measured
	Bandwidth uint64        // of the bytes, per second
}

// Measure has this process read its own memory, and keeps the result for all later calls,
// which any goroutine may make. The first takes some 100 us. The zero value says that
// transfers are forbidden, or that the clock is too coarse.
func Measure() Measured { return measured() }

var measured = sync.OnceValue(measure)

// Lengths of the transfers that are measured, in bytes: both stay in the caches of a core,
// as what is sent soon after it was written.
const (
	measureShort = 4 << 10
	measureLong  = 64 << 10
	measureRuns  = 8 // of each: the least counts
)

func measure() Measured {
	src, dst := make([]byte, measureLong), make([]byte, measureLong)
	for i := range src { // every page is there
		src[i], dst[i] = byte(i), 1
	}
	least := [2]time.Duration{}
	for k, n := range []int{measureShort, measureLong} {
		for range measureRuns {
			took, err := readSelf(dst[:n], src)
			if err != nil {
				return Measured{}
			}
			if least[k] == 0 || took < least[k] {
				least[k] = took
			}
		}
	}
	more := least[1] - least[0]
	if more <= 0 {
		return Measured{}
	}
	const apart = measureLong - measureShort
	call := least[0] - more*measureShort/apart
	return Measured{Call: max(call, 1), Bandwidth: uint64(apart) * uint64(time.Second) / uint64(more)}
}

// readSelf reads from src, which is on the heap: its address is a number to the kernel, and
// stays the one of src as long as that is kept alive.
func readSelf(dst, src []byte) (time.Duration, error) {
	v := new(Vec)
	start := time.Now()
	err := v.Read(os.Getpid(), dst, uint64(uintptr(unsafe.Pointer(unsafe.SliceData(src)))))
	took := time.Since(start)
	runtime.KeepAlive(src)
	return took, err
}
