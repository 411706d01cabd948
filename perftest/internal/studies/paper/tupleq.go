package paper

// Commands of the study of TupleQ.
var (
	tqOverlap = &Run{Args: "overlap --model connectxddr"}
	tqSP      = &Run{Args: "sp --model connectxddr --factor 4"}
)

// available returns the availability of a protocol at a size.
func available(side, protocol, size string) Value {
	return pick(tqOverlap, "side="+side+",protocol="+protocol+",size="+size, "availability")
}

func spSeconds(class, protocol string) Value {
	return pick(tqSP, "class="+class+",protocol="+protocol, "seconds")
}

// spCase returns the time of a protocol relative to that of RPUT.
func spCase(class, protocol string, paper float64, says string, rule Rule) Case {
	return Case{Name: "class " + class + ", " + protocol + " over rput", Value: over(spSeconds(class, protocol), spSeconds(class, "rput")),
		Unit: Percent, Paper: paper, Says: says, Place: "section 8.4", Rule: rule}
}

func tupleqPaper() *Paper {
	return &Paper{
		Name:    "tupleq",
		Title:   "TupleQ: Fully-Asynchronous and Zero-Copy MPI over InfiniBand",
		Authors: "M. Koop, J. Sridhar, D. K. Panda, 2009",
		Machine: "64 processes on 8 nodes, ConnectX DDR",
		Intro: "A rendezvous needs control messages, which need the CPU of both sides, so that a large transfer does not overlap with computation. " +
			"TupleQ has a shared receive queue for each tuple of communicator, rank and tag; the NIC places messages of any size into the receive that is posted there. " +
			"gucx runs the same exchange over its own protocols in the virtual time of a model of that cluster.",
		Figures: []Figure{
			{ID: "1", Title: "Eager and rendezvous protocols", How: Structure, Lesson: "Eager copies on both sides; rendezvous sends control messages.",
				Missing: "A drawing; `perftest info -p` prints the protocols of an endpoint."},
			{ID: "2", Title: "Progress of RPUT and RGET", How: Structure, Lesson: "A control message waits until its receiver calls the library.",
				Missing: "A drawing; figure 5 measures it."},
			{ID: "3", Title: "Queues of tuples", How: Structure, Lesson: "The sender names the receive queue of the tuple, so that the NIC matches.",
				Missing: "A drawing; the design is ucp/internal/tuple."},
			{ID: "4", Title: "Creating a queue on demand", How: Structure, Lesson: "A queue is created when a tuple is first used.",
				Missing: "A drawing; the exchange is in docs/design/0007-tupleq.md."},
			{ID: "3.3", Title: "Memory of receive buffers for 1,000 peers", How: Counted,
				Lesson: "A receive queue for each peer, with 5 buffers of 8 KiB, takes 40 MB in a process of a job of 1,000; a shared queue takes the same for any number.",
				Note:   "rc of gucx has a shared queue, so its receive buffers do not grow with peers.",
				Cases: []Case{
					{Name: "5 buffers of 8 KiB for each of 999 peers", Value: fixed(999 * 5 * 8 << 10), Unit: KiB, Says: "over 40 MB", Paper: 40e6, Place: "section 3.3", Rule: atLeast},
				}},
			{ID: "5a", Title: "Application availability", How: Virtual,
				Lesson: "TupleQ leaves nearly all of the CPU to the application at each size; rendezvous, which begins at 8 KiB, leaves hardly any at the side that must answer.",
				Note:   "The sender of RGET does nothing but post, as the paper says of RGET; its plot does not tell sides apart. The sender of small messages pays the post itself, 8 % of 2.5 us at one byte.",
				Cases: []Case{
					{Name: "tupleq, receiver, least of all sizes", Value: smallest(tqOverlap, "side=irecv,protocol=tupleq", "availability"), Unit: Percent, Says: "nearly 100 %", Paper: 1, Place: "figure 5(a)", Rule: near(0.05)},
					{Name: "tupleq, sender, least of all sizes", Value: smallest(tqOverlap, "side=isend,protocol=tupleq", "availability"), Unit: Percent, Says: "nearly 100 %", Paper: 1, Place: "figure 5(a)", Rule: near(0.05)},
					{Name: "rput, receiver, 1 MiB", Value: available("irecv", "rput", "1048576"), Unit: Percent, Says: "0 %", Place: "figure 5(a)", Rule: near(0.05)},
					{Name: "rget, receiver, 1 MiB", Value: available("irecv", "rget", "1048576"), Unit: Percent, Says: "0 %", Place: "figure 5(a)", Rule: near(0.05)},
					{Name: "rput, sender, 1 MiB", Value: available("isend", "rput", "1048576"), Unit: Percent, Says: "0 %", Place: "figure 5(a)", Rule: near(0.3)},
					{Name: "rput, receiver, drop at 8 KiB", Value: minus(available("irecv", "rput", "4096"), available("irecv", "rput", "8192")), Unit: Percent, Says: "steep", Place: "section 8.3", Rule: between(0.3, 1)},
				},
				Plots: []Plot{
					{Run: tqOverlap, Where: "side=irecv", Title: "Figure 5(a): availability of the receiver", X: "size", Y: "availability", Series: "protocol", Scale: 100, XLabel: "bytes", YLabel: "%"},
					{Run: tqOverlap, Where: "side=isend", Title: "Figure 5(a): availability of the sender", X: "size", Y: "availability", Series: "protocol", Scale: 100, XLabel: "bytes", YLabel: "%"},
				}},
			{ID: "5b", Title: "Overhead of a message", How: Virtual,
				Lesson: "What does not overlap is overhead: the whole transfer for rendezvous, a post for TupleQ.",
				Cases: []Case{
					{Name: "receiver, 1 MiB, rput over tupleq", Value: over(overheadOf("irecv", "rput"), overheadOf("irecv", "tupleq")), Unit: Times, Says: "high against minimal", Place: "figure 5(b)", Rule: between(10, 1e9)},
					{Name: "receiver, 1 MiB, rget over tupleq", Value: over(overheadOf("irecv", "rget"), overheadOf("irecv", "tupleq")), Unit: Times, Says: "high against minimal", Place: "figure 5(b)", Rule: between(10, 1e9)},
				},
				Plots: []Plot{{Run: tqOverlap, Where: "side=irecv", Title: "Figure 5(b): overhead of the receiver", X: "size", Y: "overhead_us", Series: "protocol", XLabel: "bytes", YLabel: "us"}}},
			{ID: "6", Title: "NAS SP, 64 processes", How: Virtual,
				Lesson: "SP posts its sends before it computes; with overlap its time falls by a quarter.",
				Note:   "Computation takes 4 times what it takes on the machine where its cost was measured; --factor changes that, and the share of communication with it. The copy of TupleQ-copy is free in our runs as the messages of SP are large.",
				Cases: []Case{
					spCase("B", "tupleq", 27.38/36.69, "27.38 of 36.69 s", near(0.05)),
					spCase("B", "tupleq_copy", 28.74/36.69, "28.74 of 36.69 s", near(0.05)),
					spCase("B", "rget", 36.78/36.69, "36.78 of 36.69 s", near(0.05)),
					spCase("C", "tupleq", 1/1.27, "27 % higher performance", near(0.05)),
					spCase("C", "rget", 1, "similar", near(0.05)),
					{Name: "class B, tupleq_copy over tupleq", Value: over(spSeconds("B", "tupleq_copy"), spSeconds("B", "tupleq")), Unit: Times, Paper: 28.74 / 27.38, Place: "section 8.4", Rule: within(0.05)},
				}},
		},
	}
}

func overheadOf(side, protocol string) Value {
	return pick(tqOverlap, "side="+side+",protocol="+protocol+",size=1048576", "overhead_us")
}
