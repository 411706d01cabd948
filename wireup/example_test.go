package wireup_test

import (
	"fmt"
	"time"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// Which transport takes which role: both workers have shared memory and sockets, and are on two
// hosts. Both compute it from the same numbers, so they need not agree on it by messages.
func ExampleExplain() {
	worker := func(uuid byte) *wireup.Address {
		cost := func(d time.Duration, bw float64) wireup.Cost {
			return wireup.Cost{Overhead: wireup.TimeOf(d), Latency: wireup.TimeOf(d), Bandwidth: wireup.RateOf(bw)}
		}
		const caps = uct.CapConnectIface | uct.CapPending | uct.CapAMBcopy |
			uct.CapPutBcopy | uct.CapPutZcopy | uct.CapGetBcopy | uct.CapGetZcopy
		mem, net := cost(50*time.Nanosecond, 10e9), cost(10*time.Microsecond, 1e9)
		return &wireup.Address{Key: wireup.PublicKey{uuid}, MDs: []wireup.MD{{Component: "sm"}, {Component: "tcp"}}, Resources: []wireup.Resource{
			{Transport: "sm", Device: "memory", MD: 0, Caps: caps, RMA: mem, AM: mem, AMBcopy: 200},
			{Transport: "tcp", Device: "eth0", MD: 1, Caps: caps, RMA: net, AM: net, AMBcopy: 200},
		}}
	}
	reach := func(local, remote int) (ok bool, why string) {
		if local == 0 { // in ucp this is the answer of the iface
			return false, "on another host"
		}
		return local == remote, "of another transport"
	}
	fmt.Print(wireup.Explain(worker(1), worker(2), reach, wireup.Rails{}))
	// Output:
	// worker 0x1 to worker 0x2
	// rma: score is 1 / (latency + overhead + 4 KiB)
	// * tcp/eth0[1]   tcp/eth0[1]   score 40735  10240 + 10240 + 4069 ns
	//   sm/memory[0]  sm/memory[0]  unreachable: on another host
	// amo: score is 1 / (latency + overhead)
	//   sm/memory[0]  sm/memory[0]  no atomic64
	//   tcp/eth0[1]   tcp/eth0[1]   no atomic64
	// am: score is 1 / (latency + overhead)
	// * tcp/eth0[1]   tcp/eth0[1]   score 32552  10240 + 20480 ns
	//   sm/memory[0]  sm/memory[0]  unreachable: on another host
	// rma_bw: score is 1 / (latency + overhead + 1024 KiB)
	// * tcp/eth0[1]   tcp/eth0[1]   score 941  10240 + 10240 + 1041666.7 ns
	//   sm/memory[0]  sm/memory[0]  unreachable: on another host
	// am_bw: score is 1 / (latency + overhead + 1024 KiB)
	// * tcp/eth0[1]   tcp/eth0[1]   score 932  10240 + 20480 + 1041666.7 ns
	//   sm/memory[0]  sm/memory[0]  unreachable: on another host
	// aux: score is 1 / (latency + overhead)
	// * tcp/eth0[1]   tcp/eth0[1]   score 32552  10240 + 20480 ns
	//   sm/memory[0]  sm/memory[0]  unreachable: on another host
}
