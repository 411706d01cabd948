package wireup_test

import (
	"fmt"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// The transports of a worker, as a peer sees them.
func ExampleUnpackAddress() {
	packed, err := (&wireup.Address{
		Key: wireup.PublicKey{7},
		MDs: []wireup.MD{{Component: "tcp"}},
		Resources: []wireup.Resource{{
			Transport: "tcp", Caps: uct.CapAMBcopy | uct.CapPending | uct.CapConnectIface,
			AM: wireup.Cost{Overhead: 80, Latency: 100, Bandwidth: 75}, AMBcopy: 88,
		}},
	}).Pack() // in a program, Worker.Address of package ucp
	if err != nil {
		panic(err)
	}
	a, err := wireup.UnpackAddress(packed)
	if err != nil {
		panic(err)
	}
	for _, r := range a.Resources {
		fmt.Printf("%s of %s: %v, %d MiB/s, messages of at most %d bytes\n", r.Transport, a.MDs[r.MD].Component, r.Caps,
			r.AM.Bandwidth.BytesPerSecond()>>20, r.AMBcopy.Bytes())
	}
	// Output:
	// tcp of tcp: am_bcopy|pending|connect_to_iface, 2816 MiB/s, messages of at most 8192 bytes
}

// Why tcp is used for puts: EPInfo.Choices of package ucp has one Choice for each role.
func ExampleChoice() {
	fmt.Print(wireup.Choice{
		Role: wireup.RMA, Terms: "latency + overhead + 4 KiB",
		Pairs: []wireup.Pair{
			{Local: "tcp/eth0[1]", Remote: "tcp[1]", Chosen: true, Score: 40735,
				Cost: wireup.PairCost{Latency: 10240000, Overhead: 10240000, Transfer: 4069000, Size: 4096}},
			{Local: "sm/memory[0]", Remote: "sm[0]", Why: "unreachable: on another host"},
		},
	})
	// Output:
	// rma: score is 1 / (latency + overhead + 4 KiB)
	// * tcp/eth0[1]   tcp[1]  score 40735  10240 + 10240 + 4069 ns
	//   sm/memory[0]  sm[0]   unreachable: on another host
}
