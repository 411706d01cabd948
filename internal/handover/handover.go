// Package handover measures what it takes on this machine to move bytes from one process to
// another one whose processors share its memory: by the processors, and by the kernel.
package handover

import (
	"sync"
	"time"
)

// Costs are what moving bytes takes that another CPU has written.
//
// Pass contains the transfer of each cache line from CPU to CPU twice: a ring is written anew for each
// message. Read and Kernel contain it in the first copy of the data only, and are measured without: data
// that is sent again has been read before, and a sender of new data pays as much for a copy into a ring
// as the receiver for the first copy.
type Costs struct {
	Read   uint64        // bytes per second of a copy by the CPU that needs them
	Pass   uint64        // bytes per second through a ring of segments, into which one processor copies while another one copies out
	Line   time.Duration // until a CPU that polls a word sees what another CPU has stored there
	Call   time.Duration // of a transfer by the kernel (cross-memory attach), whatever its length
	Kernel uint64        // bytes per second of that; 0: it is forbidden here
	// Measured is false for costs that are assumed: there is no second processor for this process,
	// none was free in time, or the clock is too coarse.
	Measured bool
}

// Measure returns the costs on this machine. Any goroutine may call it. The first call of a process
// uses two CPUs and blocks: about 1 ms on an idle machine, at most Limit on a busy one. All later calls
// return the same costs.
func Measure() Costs { return measured() }

var measured = sync.OnceValue(func() Costs { return measure(time.Now, Limit) })

// Limit is how long Measure may take. On a machine with more runnable threads than CPUs the second
// goroutine waits for time slices of other threads first. Of 40 processes beside three busy loops on two CPUs
// 26 measured the costs, and 4 with a limit of 1 ms.
const Limit = 50 * time.Millisecond

// assumed are costs in the middle between two machines: one whose processors share a cache (Pass
// 25 GB/s, Kernel 16 GB/s), and a virtual one (2.5 and 6 GB/s). Whatever the machine, what is chosen by
// them is not worse than the best by more than these are apart. See experiment 0070 in docs/perf.
func assumed() Costs {
	return Costs{Read: 20e9, Pass: 8e9, Line: 130 * time.Nanosecond, Call: 1200 * time.Nanosecond, Kernel: 10e9}
}
