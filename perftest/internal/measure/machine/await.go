package machine

import (
	"runtime"
	"sync/atomic"
)

// yieldSpins is how long await spins before it lets other goroutines run: only
// where there is one processor for both sides does it get that far.
const yieldSpins = 1 << 16

// await spins until *seq is v.
func await(seq *atomic.Uint64, v uint64) {
	for spins := 1; seq.Load() != v; spins++ {
		if spins%yieldSpins == 0 {
			runtime.Gosched()
		}
	}
}
