package paper

// Commands of the study of direct verbs.
var (
	dvInstr = &Run{Args: "instructions --ops put,get,am_short,am_short_recv,am_bcopy,am_bcopy_recv --layers uct --no-device -n 3 -x rc,rc_mlx5,ud,ud_mlx5 -s 8,64,128,1024,4096"}
	dvTag   = &Run{Args: "instructions --ops tag,tag_recv --layers ucp --no-device -n 3 -x rc,rc_mlx5 -s 1,8,64,128,1024,4096,8192,16384"}
	// Virtual time. 32 ranks on 16 nodes correspond to the paper's 16 nodes with two processes each.
	dvModel2   = &Run{Args: "ranks --model connectx6 --ranks 2 -t pingpong,bw -s 8,512,4k,64k"}
	dvModel8   = &Run{Args: "ranks --model connectx6 --ranks 8 -t bw,bibw,allgather,scatter,gather,alltoall,allreduce,bcast -s 8,1k,16k,64k"}
	dvModel32  = &Run{Args: "ranks --model connectx6 --ranks 32 --nodes 16 -t allgather,scatter,alltoall -s 8,1k,16k -n 2"}
	dvModel128 = &Run{Args: "ranks --model connectx6 --ranks 128 -t allreduce,bcast,gather,scatter -s 8,16k -n 2"}
	dvModelCPI = &Run{Args: "ranks --model connectx6 --ranks 8 -t allgather -s 8 --cpi 0.5,1,2"}
	dvModelUD  = &Run{Args: "ranks --model connectx6 --ranks 8 -x ud,ud_mlx5 -t allgather,allreduce -s 8,1k"}

	dvMILC   = &Run{Args: "su3 -n 200"}
	dvLAMMPS = &Run{Args: "lj -n 200"}

	dvFootprint = &Run{Args: "footprint --peers 1,8,64,512"}
)

// ofOp returns a column for an operation of uct, or of ucp for tags.
func ofOp(op, size, transport, column string) Value {
	r := dvInstr
	if op == "tag" || op == "tag_recv" {
		r = dvTag
	}
	return sum(r, "op="+op+",size="+size+",switch="+transport+layerParts, column)
}

// direct compares a column of direct verbs with that of verbs.
func direct(name, op, size, verbs, dv, column, says string, rule Rule) Case {
	return Case{Name: name, Value: over(ofOp(op, size, dv, column), ofOp(op, size, verbs, column)), Unit: Times, Says: says, Place: "section IV-B", Rule: rule}
}

// modelled returns the relative difference of a collective operation over direct verbs, in virtual time.
func modelled(r *Run, test, size string) Value {
	return pick(r, "test="+test+",size="+size+",cpi=1,transport=rc_mlx5|ud_mlx5", "change")
}

func modelCase(r *Run, where, test, size, says string, rule Rule) Case {
	place := "section IV-A"
	if r == dvModel128 {
		place = "section IV-D"
	}
	return Case{Name: where + ", " + test + " " + size + " B, time", Value: modelled(r, test, size), Unit: Points, Says: says, Place: place, Rule: rule}
}

func modelPlot(r *Run, test, title string) Plot {
	return Plot{Run: r, Where: "test=" + test, Title: title, X: "size", Y: "mean_ns", Series: "transport", Scale: 1e-3, LogY: true, XLabel: "bytes", YLabel: "us"}
}

// kernelCases are the cases of an application. The size is that of tagged messages whose instructions are counted and
// whose length is that of its messages, or close to it.
func kernelCases(r *Run, size string, low, high float64) []Case {
	count := func(tl string) Value {
		return plus(ofOp("tag", size, tl, "instructions"), ofOp("tag_recv", size, tl, "instructions"))
	}
	messages := pick(r, "transport=rc", "messages")
	saved := calc(minus(count(""), count("rc_mlx5")), messages, func(a, b float64) float64 { return a * b })
	return []Case{
		{Name: "time of an iteration", Value: pick(r, "transport=rc_mlx5", "change"), Unit: Points, Says: "less than 1 %, of either sign", Place: "section IV-E", Noisy: true},
		{Name: "instructions that direct verbs save, at 2.6 GHz and one cycle each", Value: over(scaled(saved, 1/2.6), pick(r, "transport=rc", "best_ns")),
			Unit: Percent, Says: "less than 1 %", Place: "section IV-E", Rule: between(low, high)},
		{Name: "messages of a rank in an iteration", Value: messages},
		{Name: "bytes in them", Value: pick(r, "transport=rc", "bytes"), Unit: KiB},
		{Name: "sums over all ranks in an iteration", Value: pick(r, "transport=rc", "sums")},
		{Name: "time that a rank waits", Value: pick(r, "transport=rc", "waiting"), Unit: Percent},
	}
}

func heapOf(tl, peers, column string) Value {
	return pick(dvFootprint, "transport="+tl+",peers="+peers, column)
}

func dvPlot(op, title string) Plot {
	r := dvInstr
	if op == "tag" || op == "tag_recv" {
		r = dvTag
	}
	return Plot{Run: r, Where: "op=" + op, Title: title, X: "size", Y: "instructions", Series: "layer,switch", Sum: layerParts[1:], XLabel: "bytes", YLabel: "instructions"}
}

const modelNote = "In virtual time, with a ConnectX-6 for each node: calls cost their counted instructions times one cycle at 2.6 GHz, an assumption that figure 2 varies. " +
	"The time of copies of messages and of the network is the same for both, so the gain in time is smaller than that in instructions. Ranks of one node communicate over sm, whose cost is its instructions, 53 ns for each cache line that another core has written, and copies. Ranks share no other resources of the CPU, and there is no helper thread."

// realTimeVaries is the reason why times of messages are not measured on the software HCA.
const realTimeVaries = "In real time on the software HCA (perftest -x rc,rc_mlx5 --layers ucp -t tag_lat,tag_bw) direct verbs took between 46 % less and 35 % more in two runs: " +
	"if two processes share two CPUs, the times at which both run determine the result."

const kernelNote = "Two ranks on two CPUs, over rc and rc_mlx5 in turns; results are equal bit for bit, also to those of one rank. The times of runs differ by more than the effect, which " +
	"instructions show: the computation of an iteration takes so long that the time saved by messages is negligible."

func directVerbsPaper() *Paper {
	return &Paper{
		Name:    "direct-verbs",
		Title:   "In-Depth Evaluation of a Lower-Level Direct-Verbs API on InfiniBand-based Clusters: Early Experiences",
		Authors: "B. Michalowicz, K. K. Suresh, B. Ramesh, A. Shafi, H. Subramoni, M. Abduljabbar, D. K. Panda, 2023",
		Machine: "two Xeon E5-2697A v4 a node, ConnectX-6 HDR100, MVAPICH2 over UCX 1.13.1",
		Intro: "Direct verbs give a program the queues of the device: it writes work requests itself and rings the doorbell, without the layers of the verbs library. " +
			"The paper compares an MPI library over UCX with either, in time, processor counters and heap. " +
			"In gucx rc and ud use its verbs library, rc_mlx5 and ud_mlx5 write the queues; instructions, branches and loads of each operation are counted exactly, on both sides.",
		Figures: append(dvTimes(), dvCounts()...),
	}
}

func dvTimes() []Figure {
	return []Figure{
		{ID: "1a", Title: "Latency of messages", How: Virtual, Note: modelNote + " " + realTimeVaries,
			Lesson: "Direct verbs are faster for small and medium messages; the gain is below 5 % beyond 4 KiB and negligible beyond 16 KiB.",
			Cases: []Case{
				modelCase(dvModel2, "2 ranks", "pingpong", "8", "faster", between(-0.9, -0.01)),
				modelCase(dvModel2, "2 ranks", "pingpong", "512", "faster", between(-0.9, -0.01)),
				modelCase(dvModel2, "2 ranks", "pingpong", "4096", "less than 5 %", between(-0.05, 0)),
				modelCase(dvModel2, "2 ranks", "pingpong", "65536", "negligible", between(-0.02, 0.02)),
			},
			Plots: []Plot{modelPlot(dvModel2, "pingpong", "Figure 1(a): latency")}},
		{ID: "1b", Title: "Bandwidth, one direction", How: Virtual, Note: modelNote + " " + realTimeVaries,
			Lesson: "Small messages gain most.",
			Cases: []Case{
				modelCase(dvModel2, "2 ranks", "bw", "8", "faster", between(-0.9, -0.01)),
				modelCase(dvModel2, "2 ranks", "bw", "65536", "small", between(-0.15, 0.15)),
			},
			Plots: []Plot{modelPlot(dvModel2, "bw", "Figure 1(b): time of a message")}},
		{ID: "1c", Title: "Bandwidth, both directions", How: Virtual, Note: modelNote,
			Lesson: "The paper measures a tenth of the stalled cycles.",
			Cases: []Case{
				modelCase(dvModel8, "2 ranks", "bw", "8", "faster", between(-0.9, 0)),
				modelCase(dvModel8, "2 ranks", "bibw", "8", "faster", between(-0.9, 0)),
				modelCase(dvModel8, "2 ranks", "bibw", "65536", "little", between(-0.15, 0.15)),
			},
			Plots: []Plot{modelPlot(dvModel8, "bibw", "Figure 1(c): time of a message in both directions")}},
		{ID: "2", Title: "Allgather: gains", How: Virtual, Note: modelNote,
			Lesson: "Up to 30 % less time.",
			Cases: []Case{
				modelCase(dvModel8, "8 nodes", "allgather", "8", "up to -30 %", between(-0.35, -0.01)),
				modelCase(dvModel8, "8 nodes", "allgather", "16384", "up to -30 %", between(-0.35, -0.01)),
				modelCase(dvModel32, "16 nodes with 2 each", "allgather", "8", "up to -30 %", between(-0.35, -0.01)),
				modelCase(dvModelUD, "8 nodes over ud", "allgather", "8", "up to -30 %", between(-0.35, -0.01)),
				{Name: "8 nodes, allgather 8 B, 0.5 cycles an instruction", Value: pick(dvModelCPI, "cpi=0.5,transport=rc_mlx5", "change"), Unit: Points},
				{Name: "8 nodes, allgather 8 B, 2 cycles an instruction", Value: pick(dvModelCPI, "cpi=2,transport=rc_mlx5", "change"), Unit: Points},
			},
			Plots: []Plot{modelPlot(dvModel8, "allgather", "Figure 2: allgather on 8 nodes"), modelPlot(dvModel32, "allgather", "Figure 2: allgather of 32 ranks on 16 nodes")}},
		{ID: "3", Title: "Allgather: fluctuations", How: Virtual,
			Note:    modelNote + " Fewer instructions cannot cause a loss in virtual time.",
			Missing: "The helper thread of UCX and the rest of the system, which the paper names as causes.",
			Lesson:  "If all cores are in use, the helper thread of UCX has no core, and differences have both signs.",
			Cases: []Case{
				{Name: "8 nodes, allgather, largest gain", Value: smallest(dvModel8, "test=allgather,transport=rc_mlx5", "change"), Unit: Points, Says: "of both signs", Place: "figure 3", Rule: between(-1, -0.001)},
				{Name: "8 nodes, allgather, largest loss", Value: largest(dvModel8, "test=allgather,transport=rc_mlx5", "change"), Unit: Points, Says: "of both signs", Place: "figure 3", Rule: between(0.001, 1)},
			}},
		{ID: "4", Title: "Collective operations, one process a node", How: Virtual, Note: modelNote,
			Lesson: "With one process per node direct verbs are faster or equally fast; the gain decreases with the size.",
			Cases: []Case{
				modelCase(dvModel8, "8 nodes", "gather", "8", "equal or less", between(-0.9, 0)),
				modelCase(dvModel8, "8 nodes", "bcast", "8", "equal or less", between(-0.9, 0)),
				modelCase(dvModel8, "8 nodes", "allreduce", "8", "equal or less", between(-0.9, 0)),
				modelCase(dvModel8, "8 nodes", "allreduce", "65536", "equal or less", between(-0.9, 0)),
				{Name: "8 nodes, allreduce, gain of 8 B over that of 64 KiB", Value: over(modelled(dvModel8, "allreduce", "8"), modelled(dvModel8, "allreduce", "65536")),
					Unit: Times, Says: "falls with size", Place: "section IV-A", Rule: between(1, 1000)},
				modelCase(dvModelUD, "8 nodes over ud", "allreduce", "8", "equal or less", between(-0.9, 0)),
			},
			Plots: []Plot{modelPlot(dvModel8, "allreduce", "Figure 4: allreduce on 8 nodes")}},
		{ID: "5", Title: "Scatter and alltoall with all cores", How: Virtual, Note: modelNote,
			Missing: "32 processes a node: two are modelled.",
			Lesson:  "Scatter takes half of the time on 16 nodes; alltoall varies.",
			Cases: []Case{
				modelCase(dvModel32, "16 nodes with 2 each", "scatter", "16384", "up to -50 %", between(-0.6, -0.3)),
				modelCase(dvModel32, "16 nodes with 2 each", "scatter", "8", "varies", nil),
				modelCase(dvModel32, "16 nodes with 2 each", "alltoall", "8", "varies", nil),
				modelCase(dvModel32, "16 nodes with 2 each", "alltoall", "16384", "varies", nil),
			},
			Plots: []Plot{modelPlot(dvModel32, "scatter", "Figure 5: scatter of 32 ranks on 16 nodes"), modelPlot(dvModel32, "alltoall", "Figure 5: alltoall of 32 ranks on 16 nodes")}},
	}
}

func dvCounts() []Figure {
	less := between(0, 0.99)
	return []Figure{
		{ID: "6", Title: "Processor counters of point-to-point messages", How: Instructions,
			Lesson:  "Direct verbs need fewer instructions and cycles, and stall less.",
			Note:    "Sender and receiver are counted separately. rc_mlx5 writes a short message to its queue as one basic block, and inline data of up to 220 B as several; larger messages use the common code of the transport, as over rc.",
			Missing: "Cycles, stalled cycles, misses of the cache and mispredicted branches: this machine has no CPU counters for a guest, and they would include the software HCA. Branches and loads are the causes of mispredictions and stalls.",
			Cases: []Case{
				direct("tag 8 B, sender: instructions", "tag", "8", "", "rc_mlx5", "instructions", "fewer", less),
				direct("tag 8 B, sender: branches", "tag", "8", "", "rc_mlx5", "branches", "fewer", less),
				direct("tag 8 B, sender: loads", "tag", "8", "", "rc_mlx5", "loads", "fewer", less),
				direct("tag 8 B, receiver: instructions", "tag_recv", "8", "", "rc_mlx5", "instructions", "fewer", less),
				direct("tag 4 KiB, sender: instructions", "tag", "4096", "", "rc_mlx5", "instructions", "fewer", less),
				direct("put 8 B: instructions", "put", "8", "", "rc_mlx5", "instructions", "fewer", less),
				direct("put 8 B: loads", "put", "8", "", "rc_mlx5", "loads", "fewer", less),
				direct("put 64 B: instructions", "put", "64", "", "rc_mlx5", "instructions", "fewer", less),
				direct("put 4 KiB: instructions", "put", "4096", "", "rc_mlx5", "instructions", "fewer", less),
				direct("get 1 KiB: instructions", "get", "1024", "", "rc_mlx5", "instructions", "fewer", less),
			},
			Plots: []Plot{dvPlot("put", "Figure 6: instructions of a put"), dvPlot("tag", "Figure 6: instructions of a tagged send"), dvPlot("tag_recv", "Figure 6: instructions of the receiver's progress")}},
		{ID: "7", Title: "Counters of allgather", How: Instructions, Lesson: "Fewer stalled cycles for small messages; instructions matter less.",
			Note: "A collective operation sends tagged messages; its other instructions are the same for both.", Missing: "Cycles and stalls, as in figure 6.",
			Cases: []Case{
				direct("message of 8 B, sender: loads", "tag", "8", "", "rc_mlx5", "loads", "fewer", less),
				direct("message of 1 KiB, receiver: loads", "tag_recv", "1024", "", "rc_mlx5", "loads", "fewer", less),
			}},
		{ID: "8", Title: "Counters of allgather that fluctuates", How: Structure, Lesson: "The counters follow the time.", Missing: "Cycles and stalls, as in figure 6; times that fluctuate have no counted cause."},
		{ID: "9", Title: "Counters of scatter and alltoall", How: Instructions, Lesson: "Scatter's time follows its stalls and misses.",
			Note: "For many processes UCX uses datagrams, so these are instructions of ud and ud_mlx5.", Missing: "Cycles and stalls, as in figure 6.",
			Cases: []Case{
				direct("ud, message of 8 B, sender: instructions", "am_short", "8", "ud", "ud_mlx5", "instructions", "fewer", less),
				direct("ud, message of 8 B, receiver: instructions", "am_short_recv", "8", "ud", "ud_mlx5", "instructions", "fewer", less),
				direct("ud, message of 1 KiB, sender: instructions", "am_bcopy", "1024", "ud", "ud_mlx5", "instructions", "fewer", less),
				direct("ud, message of 1 KiB, receiver: instructions", "am_bcopy_recv", "1024", "ud", "ud_mlx5", "instructions", "fewer", less),
			},
			Plots: []Plot{dvPlot("am_bcopy", "Figure 9: instructions of a copied message"), dvPlot("am_bcopy_recv", "Figure 9: instructions of its receiver")}},
		{ID: "10", Title: "Heap on 8 nodes", How: Counted,
			Lesson: "The heap of direct verbs is constant where that of verbs grows with processes.",
			Note:   "An endpoint of rc or rc_mlx5 is a queue pair, so the heap of both grows equally; queues are outside the heap. rc_mlx5 adds a ring of indexes of work requests. The paper attributes the growth to structures of the verbs library, which are the same for both here.",
			Cases: []Case{
				{Name: "rc: heap of 512 peers over 8", Value: over(heapOf("rc", "512", "heap"), heapOf("rc", "8", "heap")), Unit: Times, Says: "grows", Place: "figure 10", Rule: between(2, 1000)},
				{Name: "rc_mlx5: heap of 512 peers over 8", Value: over(heapOf("rc_mlx5", "512", "heap"), heapOf("rc_mlx5", "8", "heap")), Unit: Times, Says: "constant", Paper: 1, Place: "figure 10", Rule: within(0.2)},
				{Name: "rc_mlx5 over rc: heap, 512 peers", Value: over(heapOf("rc_mlx5", "512", "heap"), heapOf("rc", "512", "heap")), Unit: Times, Says: "less", Place: "figure 10", Rule: less},
				{Name: "rc: heap of a peer", Value: scaled(heapOf("rc", "512", "heap"), 1.0/512), Unit: KiB},
				{Name: "rc: queues of a peer", Value: scaled(heapOf("rc", "512", "qp_bytes"), 1.0/512), Unit: KiB},
			},
			Plots: []Plot{{Run: dvFootprint, Title: "Figure 10: heap", X: "peers", Y: "heap", Series: "transport", Scale: 1.0 / (1 << 20), XLabel: "peers", YLabel: "MiB"}}},
		{ID: "11", Title: "Heap on 32 nodes", How: Counted,
			Lesson: "Above 512 processes UCX selects UD, and the heap of verbs decreases.",
			Cases: []Case{
				{Name: "512 peers: heap of ud over rc", Value: over(heapOf("ud", "512", "heap"), heapOf("rc", "512", "heap")), Unit: Times, Says: "falls", Place: "section IV-C", Rule: between(0, 0.5)},
				{Name: "512 peers: queue pairs of ud", Value: heapOf("ud", "512", "qps"), Says: "one for all", Paper: 1, Place: "section IV-C", Rule: exactly},
				{Name: "ud: heap of a peer", Value: scaled(heapOf("ud", "512", "heap"), 1.0/512), Unit: KiB},
				{Name: "ud_mlx5 over ud: heap, 512 peers", Value: over(heapOf("ud_mlx5", "512", "heap"), heapOf("ud", "512", "heap")), Unit: Times, Says: "the same with UD and RC", Place: "section VI-A", Rule: within(1)},
			}},
		{ID: "12", Title: "Collective operations on 128 nodes", How: Virtual, Note: modelNote, Missing: "16 processes a node: one is modelled.",
			Lesson: "Up to 20 % at large scale, now for large messages.",
			Cases: []Case{
				modelCase(dvModel128, "128 nodes", "allreduce", "8", "up to -20 %", between(-0.2, 0)),
				modelCase(dvModel128, "128 nodes", "bcast", "8", "up to -20 %", between(-0.2, 0)),
				modelCase(dvModel128, "128 nodes", "gather", "8", "up to -20 %", between(-0.2, 0)),
				modelCase(dvModel128, "128 nodes", "scatter", "8", "up to -20 %", between(-0.2, 0)),
				modelCase(dvModel128, "128 nodes", "allreduce", "16384", "up to -20 %", between(-0.2, 0)),
				modelCase(dvModel128, "128 nodes", "bcast", "16384", "up to -20 %", between(-0.2, 0)),
				modelCase(dvModel128, "128 nodes", "scatter", "16384", "up to -20 %", between(-0.2, 0)),
				modelCase(dvModel128, "128 nodes", "gather", "16384", "losses of large messages", nil),
			},
			Plots: []Plot{modelPlot(dvModel128, "allreduce", "Figure 12: allreduce on 128 nodes"), modelPlot(dvModel128, "bcast", "Figure 12: bcast on 128 nodes")}},
		{ID: "13", Title: "MILC", How: RealTime, Note: kernelNote, Lesson: "A lattice computation gains less than 1 %, of either sign.",
			Missing: "8 and 16 nodes, and MILC itself: perftest su3 is its solver on a lattice of 8 x 8 x 8 x 8 sites.",
			Cases:   kernelCases(dvMILC, "16384", 0, 0.01)},
		{ID: "14", Title: "LAMMPS", How: RealTime, Note: kernelNote, Lesson: "Molecular dynamics gain a little more, and neither wins clearly.",
			Missing: "8 and 16 nodes, and LAMMPS itself: perftest lj is its melt with 4,000 atoms.",
			Cases:   kernelCases(dvLAMMPS, "16384", 0, 0.01)},
	}
}
