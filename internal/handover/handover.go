// Package handover measures what it takes on this machine to move bytes from one process to
// another one whose processors share its memory: by the processors, and by the kernel.
package handover

import (
	"sync"
	"time"
)

// Costs are what moving bytes takes that another processor has just written.
type Costs struct {
	Read   uint64        // bytes per second of a copy by the processor that needs them
	Pass   uint64        // bytes per second through a ring of segments, into which one processor copies while another one copies out
	Call   time.Duration // of a transfer by the kernel (cross-memory attach), whatever its length
	Kernel uint64        // bytes per second of that; 0: it is forbidden here
	// Measured is false for costs that are assumed: there is no second processor for this process,
	// none was free in time, or the clock is too coarse.
	Measured bool
}

// Measure returns the costs on this machine. It is for any goroutine. The first call of a process
// blocks for Limit at most, some 0.6 ms on an idle machine (docs/perf.md), and keeps two processors
// busy; all later ones return the same.
func Measure() Costs { return measured() }

var measured = sync.OnceValue(func() Costs { return measure(time.Now, Limit) })

// Limit is how long measuring may take, and what takes longer is left out.
const Limit = time.Millisecond

// assumed are costs in the middle between two machines: one whose processors share a cache (Pass
// 25 GB/s, Kernel 16 GB/s), and a virtual one (2.5 and 6 GB/s). Whatever the machine, what is chosen by
// them is not worse than the best by more than these are apart. docs/perf.md, "Costs on this machine".
func assumed() Costs {
	return Costs{Read: 20e9, Pass: 8e9, Call: 1200 * time.Nanosecond, Kernel: 10e9}
}
