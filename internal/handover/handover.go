// Package handover measures the cost of passing bytes between two processes of this machine: by
// copies of their CPUs through shared memory, and by the kernel.
package handover

import (
	"sync"
	"time"
)

// Costs are the costs of passing bytes that another CPU has written.
//
// Pass includes two transfers of each cache line between the CPUs, because the sender writes the ring again for each
// message. Read and Kernel do not include such transfers: they are measured without the first copy of new data. Data that
// is sent again is already in the receiver's cache. With new data, the first copy costs the receiver as much as a copy
// into a ring costs the sender.
type Costs struct {
	Read   uint64        // bytes per second of a copy by the CPU that needs the data
	Pass   uint64        // bytes per second through a ring of segments: one CPU copies into it while another one copies out of it
	Line   time.Duration // time from a store of one CPU until another CPU that polls the word loads the value
	Call   time.Duration // duration of a transfer by the kernel (cross-memory attach) of 0 bytes
	Kernel uint64        // bytes per second of such a transfer, without Call; 0: the kernel forbids it
	// Measured is false for assumed costs: there is no second CPU for this process,
	// none was free in time, or the clock is too coarse.
	Measured bool
}

// Measure returns the costs on this machine. Any goroutine may call it. The first call of a process
// uses two CPUs and blocks: about 1 ms on an idle machine, at most Limit on a busy one. All later calls
// return the same costs.
func Measure() Costs { return measured() }

var measured = sync.OnceValue(func() Costs { return measure(time.Now, Limit) })

// Limit is the maximum duration of Measure. On a machine with more runnable threads than CPUs the second
// goroutine first waits for time slices of other threads. With three busy loops on two CPUs 26 of 40 processes
// measured the costs, and with a limit of 1 ms only 4.
const Limit = 50 * time.Millisecond

// assumed returns costs in the middle between two machines: one whose CPUs share a cache (Pass
// 25 GB/s, Kernel 16 GB/s), and a virtual one (2.5 and 6 GB/s). On any of these machines, a protocol that is chosen by them
// is slower than the best one by at most the ratio of these costs. See experiment 0070 in docs/perf.
func assumed() Costs {
	return Costs{Read: 20e9, Pass: 8e9, Line: 130 * time.Nanosecond, Call: 1200 * time.Nanosecond, Kernel: 10e9}
}
