package machine

import (
	"runtime"
	"sync/atomic"
)

// yieldSpins is the number of spins before await yields to other goroutines: it reaches that number
// only if both sides share one CPU.
const yieldSpins = 1 << 16

// await spins until *seq is v.
func await(seq *atomic.Uint64, v uint64) {
	for spins := 1; seq.Load() != v; spins++ {
		if spins%yieldSpins == 0 {
			runtime.Gosched()
		}
	}
}
