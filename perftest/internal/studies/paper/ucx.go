package paper

import (
	"slices"
	"strings"
)

// Commands of the study of UCX. Those in real time compare medians, which load changes least.
var (
	ucxInstr = &Run{Args: "instructions --ops put,flush,idle,poll_tx,poll_rx --switches --no-device -n 5 -x rc,rc_mlx5 -s 1,8,28,64,98,128,220,256,1024,4096,8192"}
	ucxIdle  = &Run{Args: "instructions --ops idle --layers uct --switches --no-device -n 60 -x rc,rc_mlx5,ud,ud_mlx5"}

	ucxShort       = &Run{Args: "-x rc -t put_lat -s 1,8,64,96 --rounds 50"}
	ucxShortDirect = &Run{Args: "-x rc_mlx5 --layers averbs,uct,ucp -t put_lat -s 1,8,64,96 --rounds 50"}
	ucxBcopy       = &Run{Env: []string{"GUCX_ZCOPY_THRESH=inf"}, Args: "-x rc -t put_lat -D bcopy --layers uct,ucp -s 128,512,2k,8k --rounds 50"}
	ucxBcopyDirect = &Run{Env: []string{"GUCX_ZCOPY_THRESH=inf"}, Args: "-x rc_mlx5 -t put_lat -D bcopy --layers uct,ucp -s 128,512,2k,8k --rounds 50"}

	ucxConnections = &Run{Args: "footprint --connect lazy,eager --peers 1,8,32"}

	// Layers of ucp with and without remedies take turns.
	ucxRemedyLat = map[string]*Run{
		"rc":      {Args: "-x rc --layers ucp,ucp-resolve,ucp-idle-tx,ucp-idle-ud -t put_lat,get_lat -s 8 --rounds 50"},
		"rc_mlx5": {Args: "-x rc_mlx5 --layers ucp,ucp-resolve,ucp-idle-tx,ucp-idle-ud -t put_lat,get_lat -s 8 --rounds 50"},
	}
	ucxWindows = map[string]*Run{
		"rc":      {Env: []string{"GUCX_ZCOPY_THRESH=inf"}, Args: "-x rc --layers ucp,ucp-resolve-idle-tx,ucp-resolve-idle-ud -t put_bw,get_bw -W 256 -s 8,1k,8k,64k --rounds 50"},
		"rc_mlx5": {Env: []string{"GUCX_ZCOPY_THRESH=inf"}, Args: "-x rc_mlx5 --layers ucp,ucp-resolve-idle-tx,ucp-resolve-idle-ud -t put_bw,get_bw -W 256 -s 8,1k,8k,64k --rounds 50"},
	}
)

// layerParts are the parts whose instructions count for a call through a layer.
const layerParts = ",part=verbs|averbs|uct|ucp"

// counted returns the instructions of a call through the API of a layer.
func counted(op, size, layer, alternative string) Value {
	return sum(ucxInstr, "op="+op+",size="+size+",layer="+layer+",switch="+alternative+layerParts, "instructions")
}

// upper returns a column of the instructions of a put in UCP itself.
func upper(size, alternative, column string) Value {
	return sum(ucxInstr, "op=put,layer=ucp,part=ucp,switch="+alternative+",size="+size, column)
}

// both returns put and flush.
func both(size, layer, alternative string) Value {
	return plus(counted("put", size, layer, alternative), counted("flush", size, layer, alternative))
}

// orderCases compares the layers of figures 5 and 6; below is the lowest one.
func orderCases(below, alternative string) []Case {
	return []Case{
		{Name: "8 B, " + below + ": put over flush", Value: over(counted("put", "8", below, alternative), counted("flush", "8", below, alternative)), Unit: Times, Says: "more in the put", Place: "section III-C", Rule: between(1, 10)},
		{Name: "8 B, UCT: flush over put", Value: over(counted("flush", "8", "uct", alternative), counted("put", "8", "uct", alternative)), Unit: Times, Says: "more in the flush", Place: "section III-C", Rule: between(1, 10)},
		{Name: "8 B, UCP: flush over put", Value: over(counted("flush", "8", "ucp", alternative), counted("put", "8", "ucp", alternative)), Unit: Times, Says: "more in the flush", Place: "section III-C", Rule: between(1, 10)},
		{Name: "put 8 B: UCP over " + below, Value: over(counted("put", "8", "ucp", alternative), counted("put", "8", below, alternative)), Unit: Times, Says: "slightly more", Place: "section III-C", Rule: between(1, 1.5)},
		{Name: "flush 8 B: UCP over " + below, Value: over(counted("flush", "8", "ucp", alternative), counted("flush", "8", below, alternative)), Unit: Times, Says: "significantly more", Place: "section III-C", Rule: between(1.5, 10)},
	}
}

// layerCases returns the instructions of each layer; below is the lowest one.
func layerCases(below, alternative string) []Case {
	return []Case{
		{Name: "put 8 B, " + below, Value: counted("put", "8", below, alternative)},
		{Name: "put 8 B, UCT", Value: counted("put", "8", "uct", alternative)},
		{Name: "put 8 B, UCP", Value: counted("put", "8", "ucp", alternative)},
		{Name: "flush 8 B, " + below, Value: counted("flush", "8", below, alternative)},
		{Name: "flush 8 B, UCT", Value: counted("flush", "8", "uct", alternative)},
		{Name: "flush 8 B, UCP", Value: counted("flush", "8", "ucp", alternative)},
	}
}

func idleOf(transport string) Value {
	return sum(ucxIdle, "op=idle,switch="+transport+layerParts, "instructions")
}

// idlePart returns the instructions of one part of an idle progress.
func idlePart(transport, part string) Value {
	return sum(ucxIdle, "op=idle,switch="+transport+",part="+part, "instructions")
}

// flushPart returns the instructions of one part of a flush of UCP after a put of 8 bytes.
func flushPart(transport, part string) Value {
	return sum(ucxInstr, "op=flush,size=8,layer=ucp,switch="+transport+",part="+part, "instructions")
}

// undone returns how many instructions of a flush a remedy saves, relative to those without it.
func undone(direct, remedy string) Value {
	without := counted("flush", "8", "ucp", strings.TrimPrefix(direct+"+"+remedy, "+"))
	return change(counted("flush", "8", "ucp", direct), without)
}

// p50 returns the median of an operation in nanoseconds.
func p50(r *Run, test, layer, size string) Value {
	return pick(r, "test="+test+",layer="+layer+",size="+size, "p50_ns")
}

// added returns the time that a layer adds, relative to that of the layer below; a column of over_ns.
func added(r *Run, test, layer, below, size, column string) Value {
	of := "test=" + test + ",size=" + size + ",layer="
	return over(pick(r, of+layer, column), pick(r, of+below, "loop_ns"))
}

// paired is the case of the time that a layer adds to the layer below, in rounds that take turns.
func paired(c Case, r *Run, test, layer, below, size string) Case {
	c.Unit = Points
	c.Value = added(r, test, layer, below, size, "over_ns")
	c.Lo, c.Hi = added(r, test, layer, below, size, "over_lo_ns"), added(r, test, layer, below, size, "over_hi_ns")
	return c
}

const instrNote = "Instructions are those of Go code, which checks bounds and moves arguments differently from C; ratios of layers compare."

const realNote = "In real time on the software HCA, which executes a write in the doorbell: the network's latency, most of the paper's, is missing, so that differences of layers are a larger share."

const remedyNote = "Latencies are those of a layer without the remedy, in real time and in turns with ucp: how much longer it takes, with the interval of 95 %. As the network's latency is missing, the same instructions are a larger share than in the paper."

func ucxPaper() *Paper {
	return &Paper{
		Name:    "ucx",
		Title:   "A Performance Study of UCX over InfiniBand",
		Authors: "N. Papadopoulou, L. Oden, P. Balaji, 2017",
		Machine: "Xeon E5-2699, ConnectX-4 EDR, UCX 1.0 (July 2016)",
		Intro: "UCX has two layers: UCT for one transport on one device, UCP above all of them. The paper counts what each layer adds to an RDMA write and to its flush, " +
			"finds the causes (keys resolved at each operation, queues polled and interfaces progressed that are not in use) and removes them. " +
			"gucx has both layers and the remedies; layers such as ucp-resolve undo them, so that the cost of each can be counted and measured in turns.",
		Figures: append(append(ucxStructure(), ucxCounts()...), ucxRemedies()...),
	}
}

func ucxStructure() []Figure {
	return []Figure{
		{ID: "1", Title: "The InfiniBand stack and UCX", How: Structure, Lesson: "Accelerated verbs write the queues of the device without the verbs library.",
			Missing: "A drawing. rc and ud go through uct/ib/verbs, rc_mlx5 and ud_mlx5 (uct/ib/dv) write the queues themselves."},
		{ID: "2", Title: "RDMA write with remote completion", How: Structure, Lesson: "A put and a flush are two calls; each of them is measured.",
			Missing: "Source code. In gucx: `ep.Put(buf, raddr, rkey, nil)`, then `ep.Flush()`."},
	}
}

// latencyCases compare layers at sizes of short messages and of copied ones.
func latencyCases(short, bcopy *Run, lowest, says, verbsPlace string) []Case {
	return []Case{
		paired(Case{Name: "8 B, UCT over " + lowest, Says: says, Place: verbsPlace, Rule: between(-0.7, 0.35)}, short, "put_lat", "uct", lowest, "8"),
		paired(Case{Name: "8 B, UCP over UCT", Says: "non-negligible overhead", Place: verbsPlace, Rule: between(0.02, 2)}, short, "put_lat", "ucp", "uct", "8"),
		paired(Case{Name: "8 KiB, copied, UCP over UCT", Says: "negligible for long messages", Place: verbsPlace, Rule: between(-0.2, 0.2)}, bcopy, "put_lat", "ucp", "uct", "8192"),
	}
}

func latencyPlots(title string, runs ...*Run) (plots []Plot) {
	for i, r := range runs {
		plots = append(plots, Plot{Run: r, Title: title + []string{", short", ", copied"}[i], X: "size", Y: "p50_ns", Series: "layer", XLabel: "bytes", YLabel: "ns, median"})
	}
	return plots
}

func instrPlot(op, title, alternatives string) Plot {
	return Plot{Run: ucxInstr, Where: "op=" + op + ",switch=" + alternatives, Title: title, X: "size", Y: "instructions", Series: "layer", Sum: layerParts[1:], XLabel: "bytes", YLabel: "instructions"}
}

func ucxCounts() []Figure {
	return []Figure{
		{ID: "3", Title: "Latency of an RDMA write over RC", How: RealTime, Note: realNote + " Short messages up to 98 B, then copies into registered buffers, as in the paper; verbs do not copy and are left out there.",
			Lesson: "UCT adds little to verbs; UCP adds something to short messages, nothing visible to long ones.",
			Cases:  latencyCases(ucxShort, ucxBcopy, "verbs", "minimal overhead", "figure 3"), Plots: latencyPlots("Figure 3: put and flush over rc", ucxShort, ucxBcopy)},
		{ID: "4", Title: "Latency of an RDMA write over accelerated RC", How: RealTime, Note: realNote + " averbs are mlx5 queues that the benchmark writes and polls itself, without UCT.",
			Lesson: "The accelerated transport is faster than RC in each layer, and UCP adds less.",
			Cases: append([]Case{
				{Name: "8 B, UCT, rc_mlx5 over rc", Value: over(p50(ucxShortDirect, "put_lat", "uct", "8"), p50(ucxShort, "put_lat", "uct", "8")), Unit: Times, Says: "lower", Place: "section III-C", Rule: between(0.1, 1)},
				{Name: "8 B, UCP, rc_mlx5 over rc", Value: over(p50(ucxShortDirect, "put_lat", "ucp", "8"), p50(ucxShort, "put_lat", "ucp", "8")), Unit: Times, Says: "lower", Place: "section III-C", Rule: between(0.1, 1)},
			}, latencyCases(ucxShortDirect, ucxBcopyDirect, "averbs", "some overhead", "figure 4")...), Plots: latencyPlots("Figure 4: put and flush over rc_mlx5", ucxShortDirect, ucxBcopyDirect)},
		{ID: "5", Title: "Instructions of an RDMA write over RC", How: Instructions, Note: instrNote,
			Lesson: "Layers add a little to the put and much to the flush, which is most of UCP and UCT at small sizes and less than the put in verbs.",
			Cases: slices.Concat(orderCases("verbs", ""), []Case{
				{Name: "put, UCP: 8 KiB over 128 B", Value: over(counted("put", "8192", "ucp", ""), counted("put", "128", "ucp", "")), Unit: Times, Says: "grows with size", Place: "section III-C", Rule: between(1, 100)},
			}, layerCases("verbs", "")),
			Plots: []Plot{instrPlot("put", "Figure 5: put over rc", ""), instrPlot("flush", "Figure 5: flush over rc", "")}},
		{ID: "6", Title: "Instructions of an RDMA write over accelerated RC", How: Instructions, Note: instrNote + " rc_mlx5 writes inline data up to 220 B into its queue itself, where rc copies from 129 B on; longer data takes the way of rc through the core of the transport.",
			Lesson: "The accelerated transport needs less than half of the instructions, as do its queues below it; the order of layers is that of figure 5.",
			Cases: slices.Concat([]Case{
				{Name: "put 8 B, UCT, rc_mlx5 over rc", Value: over(counted("put", "8", "uct", "rc_mlx5"), counted("put", "8", "uct", "")), Unit: Times, Says: "less than half", Paper: 0.5, Place: "section III-C", Rule: atMost},
				{Name: "flush 8 B, UCT, rc_mlx5 over rc", Value: over(counted("flush", "8", "uct", "rc_mlx5"), counted("flush", "8", "uct", "")), Unit: Times, Says: "less than half", Paper: 0.5, Place: "section III-C", Rule: atMost},
				{Name: "put and flush 8 B, UCT, rc_mlx5 over rc", Value: over(both("8", "uct", "rc_mlx5"), both("8", "uct", "")), Unit: Times, Says: "less than half", Paper: 0.5, Place: "section III-C", Rule: atMost},
				{Name: "put and flush 8 B, UCP, rc_mlx5 over rc", Value: over(both("8", "ucp", "rc_mlx5"), both("8", "ucp", "")), Unit: Times, Says: "less than half", Paper: 0.5, Place: "section III-C", Rule: atMost},
				{Name: "put 98 B, UCT, rc_mlx5 over rc", Value: over(counted("put", "98", "uct", "rc_mlx5"), counted("put", "98", "uct", "")), Unit: Times, Says: "less than half", Paper: 0.5, Place: "section III-C", Rule: atMost},
				{Name: "put 220 B, UCT, rc_mlx5 over rc", Value: over(counted("put", "220", "uct", "rc_mlx5"), counted("put", "220", "uct", "")), Unit: Times, Says: "less than half", Paper: 0.5, Place: "section III-C", Rule: atMost},
				{Name: "put 1 KiB, UCT, rc_mlx5 over rc", Value: over(counted("put", "1024", "uct", "rc_mlx5"), counted("put", "1024", "uct", "")), Unit: Times, Says: "less than half", Paper: 0.5, Place: "section III-C", Rule: atMost},
				{Name: "put and flush 8 B, averbs over verbs", Value: over(both("8", "averbs", "rc_mlx5"), both("8", "verbs", "")), Unit: Times, Says: "less than half", Paper: 0.5, Place: "section III-C", Rule: atMost},
				{Name: "put 1 KiB, averbs over verbs", Value: over(counted("put", "1024", "averbs", "rc_mlx5"), counted("put", "1024", "verbs", "")), Unit: Times, Says: "less than half", Paper: 0.5, Place: "section III-C", Rule: atMost},
			}, orderCases("averbs", "rc_mlx5"), layerCases("averbs", "rc_mlx5")),
			Plots: []Plot{instrPlot("put", "Figure 6: put over rc_mlx5", "rc_mlx5"), instrPlot("flush", "Figure 6: flush over rc_mlx5", "rc_mlx5")}},
		{ID: "7", Title: "What a put of UCP consists of", How: Instructions,
			Lesson:  "UCP itself spends 15 to 19 instructions on calls through pointers, 6 to 15 on lengths and fragments, 35 on the key, 4 on checks.",
			Note:    "UCP of gucx keeps the resolved lane and key in its key, so that one call through an interface remains. Branches are tests of lengths, state and errors, calls and returns.",
			Missing: "The paper's classes of single instructions: the compiler mixes them. Branches, calls and loads are decoded from the instructions themselves.",
			Cases: []Case{
				{Name: "8 B: instructions in UCP", Value: upper("8", "", "instructions"), Says: "60 = 15 + 6 + 35 + 4", Paper: 60, Place: "section IV-A", Rule: atMost},
				{Name: "1 KiB: instructions in UCP", Value: upper("1024", "", "instructions"), Says: "73 = 19 + 15 + 35 + 4", Paper: 73, Place: "section IV-A", Rule: atMost},
				{Name: "8 B: calls through pointers", Value: upper("8", "", "indirect_calls")},
				{Name: "8 B: branches", Value: upper("8", "", "branches")},
				{Name: "8 B: loads", Value: upper("8", "", "loads")},
				{Name: "8 B: UCP's share of the put over rc", Value: over(upper("8", "", "instructions"), counted("put", "8", "ucp", "")), Unit: Percent, Says: "most are UCT's and verbs'", Place: "section IV-A", Rule: between(0, 0.5)},
			}},
		{ID: "8", Title: "What a flush of UCP consists of", How: Instructions,
			Lesson: "A flush progresses every interface: one over an idle UD interface takes 306 instructions (verbs) or 129 (accelerated), of which TX and RX polls are 96 each or 38 and 25.",
			Note: "Completion queues of sends and of receives are apart in verbs and averbs, and polled one by one; a transport here has one queue for both. " +
				"Polls look first whether the queue shows that it is empty. GUCX_POLL_IDLE_TX=y adds an empty queue to each interface, as the idle queue of sends of UCX, and polls it at each progress.",
			Cases: []Case{
				{Name: "TX poll, empty, verbs", Value: counted("poll_tx", "0", "verbs", ""), Paper: 96, Place: "section IV-B", Rule: atMost},
				{Name: "RX poll, empty, verbs", Value: counted("poll_rx", "0", "verbs", ""), Paper: 96, Place: "section IV-B", Rule: atMost},
				{Name: "TX poll, empty, averbs", Value: counted("poll_tx", "0", "averbs", "rc_mlx5"), Paper: 38, Place: "section IV-B", Rule: atMost},
				{Name: "RX poll, empty, averbs", Value: counted("poll_rx", "0", "averbs", "rc_mlx5"), Paper: 25, Place: "section IV-B", Rule: atMost},
				{Name: "progress of idle ud", Value: idleOf("ud"), Paper: 306, Place: "section IV-B", Rule: atMost},
				{Name: "of these, poll of its queue", Value: idlePart("ud", "verbs"), Says: "192 = 96 + 96", Paper: 192, Place: "section IV-B", Rule: atMost},
				{Name: "of these, others", Value: idlePart("ud", "uct"), Says: "114 = 306 - 192", Paper: 114, Place: "section IV-B", Rule: atMost},
				{Name: "progress of idle ud_mlx5", Value: idleOf("ud_mlx5"), Paper: 129, Place: "section IV-B", Rule: atMost},
				{Name: "progress of idle ud_mlx5 that polls TX", Value: idleOf("ud_mlx5+poll-tx"), Paper: 129, Place: "section IV-B", Rule: atMost},
				{Name: "ud_mlx5 over ud", Value: over(idleOf("ud_mlx5"), idleOf("ud")), Unit: Times, Says: "129 of 306", Paper: 129.0 / 306, Place: "section IV-B", Rule: within(0.3)},
				{Name: "flush 8 B over rc: poll with a completion", Value: flushPart("", "verbs")},
				{Name: "flush 8 B over rc: the transport", Value: flushPart("", "uct")},
				{Name: "flush 8 B over rc: UCP", Value: flushPart("", "ucp")},
				{Name: "flush 8 B over rc: progress of ud besides, in UCX", Value: minus(counted("flush", "8", "ucp", "idle-ud"), counted("flush", "8", "ucp", ""))},
				{Name: "flush 8 B over rc_mlx5: poll with a completion", Value: flushPart("rc_mlx5", "verbs")},
				{Name: "flush 8 B over rc_mlx5: the transport", Value: flushPart("rc_mlx5", "uct")},
				{Name: "flush 8 B over rc_mlx5: UCP", Value: flushPart("rc_mlx5", "ucp")},
				{Name: "flush 8 B over rc_mlx5: progress of ud_mlx5 besides, in UCX", Value: minus(counted("flush", "8", "ucp", "rc_mlx5+idle-ud"), counted("flush", "8", "ucp", "rc_mlx5"))},
				{Name: "progress of idle rc", Value: idleOf("")},
				{Name: "progress of idle rc that polls TX", Value: idleOf("poll-tx")},
				{Name: "progress of idle rc_mlx5", Value: idleOf("rc_mlx5")},
				{Name: "progress of idle rc_mlx5 that polls TX", Value: idleOf("rc_mlx5+poll-tx")},
				{Name: "progress of an idle worker", Value: counted("idle", "0", "ucp", "")},
				{Name: "of an idle worker that progresses ud", Value: counted("idle", "0", "ucp", "idle-ud")},
				{Name: "of an idle worker that polls TX", Value: counted("idle", "0", "ucp", "poll-tx")},
			}},
	}
}

// gain is the case of the gain of windows by two remedies, or by one if that is what layer lacks.
func gain(name, transport, test, size, layer, says string, rule Rule) Case {
	return paired(Case{Name: name, Says: says, Place: "section V-B", Rule: rule}, ucxWindows[transport], test, layer, "ucp", size)
}

// latency is the case of the gain of the latency of a put of 8 bytes by a remedy.
func latency(transport, layer, says string, rule Rule) Case {
	return paired(Case{Name: "latency of a put of 8 B over " + transport, Says: says, Place: "section V-B", Rule: rule}, ucxRemedyLat[transport], "put_lat", layer, "ucp", "8")
}

func ucxRemedies() []Figure {
	return []Figure{
		{ID: "9", Title: "Remedy: the key is resolved when it is unpacked", How: Instructions,
			Lesson: "Which lane and which key an operation takes is known when the key is unpacked: 27 of 35 instructions go, and less than 1 % of latency.",
			Note:   "The alternative looks up the lane and its form of the key at each operation, in 33 instructions, and passes the operation on, in 14 more, which UCX had inlined. The remedy leaves nothing of both here; in UCX 8 instructions remained. " + remedyNote,
			Cases: []Case{
				{Name: "instructions that the remedy saves", Value: minus(upper("8", "resolve", "instructions"), upper("8", "", "instructions")), Paper: 27, Place: "section V-B", Rule: within(0.5)},
				{Name: "put 8 B in UCP with the remedy", Value: upper("8", "", "instructions"), Says: "33 = 60 - 27", Paper: 33, Place: "section V-B", Rule: within(0.3)},
				latency("rc", "ucp-resolve", "below 1 %", between(-0.01, 0.01)),
				latency("rc_mlx5", "ucp-resolve", "below 1 %", between(-0.01, 0.01)),
			}},
		{ID: "10", Title: "Remedy: send queues without operations are not polled", How: Instructions,
			Lesson: "A queue on which nothing is outstanding needs no poll: a flush takes 12 % fewer instructions over RC, 4.8 % over accelerated RC.",
			Note:   "A transport of gucx has one queue of completions. The alternative polls another one at each progress, which is empty, as the queue of sends of UCX's idle interface. " + remedyNote,
			Cases: []Case{
				{Name: "flush 8 B over rc", Value: undone("", "poll-tx"), Unit: Points, Paper: -0.12, Place: "section V-B", Rule: near(0.04)},
				{Name: "flush 8 B over rc_mlx5", Value: undone("rc_mlx5", "poll-tx"), Unit: Points, Paper: -0.048, Place: "section V-B", Rule: near(0.04)},
				{Name: "idle worker over rc", Value: change(counted("idle", "0", "ucp", ""), counted("idle", "0", "ucp", "poll-tx")), Unit: Points},
				{Name: "idle worker over rc_mlx5", Value: change(counted("idle", "0", "ucp", "rc_mlx5"), counted("idle", "0", "ucp", "rc_mlx5+poll-tx")), Unit: Points},
				latency("rc", "ucp-idle-tx", "significant", between(0.02, 1)),
				latency("rc_mlx5", "ucp-idle-tx", "less significant", between(0, 0.2)),
			}},
		{ID: "11", Title: "Remedy: interfaces without endpoints are not progressed", How: Instructions,
			Lesson: "The interface of the handshake stays open and idle: without its progress a flush takes 29.8 % fewer instructions over RC, 26.6 % over accelerated RC.",
			Note:   remedyNote,
			Cases: []Case{
				{Name: "flush 8 B over rc", Value: undone("", "idle-ud"), Unit: Points, Paper: -0.298, Place: "section V-B", Rule: near(0.1)},
				{Name: "flush 8 B over rc_mlx5", Value: undone("rc_mlx5", "idle-ud"), Unit: Points, Paper: -0.266, Place: "section V-B", Rule: near(0.1)},
				latency("rc", "ucp-idle-ud", "significant", between(0.02, 1)),
				latency("rc_mlx5", "ucp-idle-ud", "smaller, noteworthy", between(0.01, 1)),
			}},
		{ID: "12", Title: "Put: windows of 256 operations", How: RealTime,
			Lesson: "Resolved keys and no idle TX gain up to 4 % (2.8 % accelerated); without idle UD progress it is 14 % for small messages and 6 to 7 % for large ones, accelerated.",
			Note:   realNote + " All sizes are copied, as in the paper. Layers with and without the remedies take turns; the interval is that of the differences of their rounds.",
			Cases: []Case{
				gain("key and TX, 8 B, rc", "rc", "put_bw", "8", "ucp-resolve-idle-tx", "up to +4 %", between(0, 0.05)),
				gain("key and TX, 8 B, rc_mlx5", "rc_mlx5", "put_bw", "8", "ucp-resolve-idle-tx", "up to +2.8 %", between(0, 0.038)),
				gain("key and UD, 8 B, rc_mlx5", "rc_mlx5", "put_bw", "8", "ucp-resolve-idle-ud", "about +14 %", between(0.09, 0.19)),
				gain("key and UD, 64 KiB, rc_mlx5", "rc_mlx5", "put_bw", "65536", "ucp-resolve-idle-ud", "+6 to +7 %", between(0.04, 0.09)),
			},
			Plots: []Plot{{Run: ucxWindows["rc"], Where: "test=put_bw", Title: "Figure 12: windows of puts over rc", X: "size", Y: "mib_per_s", Series: "layer", XLabel: "bytes", YLabel: "MiB/s"},
				{Run: ucxWindows["rc_mlx5"], Where: "test=put_bw", Title: "Figure 12: windows of puts over rc_mlx5", X: "size", Y: "mib_per_s", Series: "layer", XLabel: "bytes", YLabel: "MiB/s"}}},
		{ID: "13", Title: "Get: windows of 256 operations", How: RealTime,
			Lesson: "A get waits for the remote side, so the remedies gain little: 1.5 % over RC, 3.5 % accelerated.",
			Note:   realNote,
			Cases: []Case{
				gain("key and UD, 8 B, rc", "rc", "get_bw", "8", "ucp-resolve-idle-ud", "+1.5 %", between(0, 0.025)),
				gain("key and UD, 8 B, rc_mlx5", "rc_mlx5", "get_bw", "8", "ucp-resolve-idle-ud", "up to +3.5 %", between(0, 0.045)),
			},
			Plots: []Plot{{Run: ucxWindows["rc"], Where: "test=get_bw", Title: "Figure 13: windows of gets over rc", X: "size", Y: "mib_per_s", Series: "layer", XLabel: "bytes", YLabel: "MiB/s"},
				{Run: ucxWindows["rc_mlx5"], Where: "test=get_bw", Title: "Figure 13: windows of gets over rc_mlx5", X: "size", Y: "mib_per_s", Series: "layer", XLabel: "bytes", YLabel: "MiB/s"}}},
		{ID: "VI", Title: "Connections on demand", How: Counted,
			Lesson: "An endpoint that connects when the worker progresses, used or not, leads to connections of all with all; it should connect at its first operation.",
			Note:   "Workers of one process over rc; each has an endpoint to a hub, which sends to one of them.",
			Cases: []Case{
				{Name: "32 peers, 1 in use: RC queue pairs, lazy", Value: pick(ucxConnections, "connect=lazy,peers=32", "qps"), Says: "those in use", Paper: 1, Place: "section VI", Rule: exactly},
				{Name: "32 peers, 1 in use: RC queue pairs, eager", Value: pick(ucxConnections, "connect=eager,peers=32", "qps"), Says: "all", Paper: 32, Place: "section VI", Rule: exactly},
				{Name: "32 peers: memory of queue pairs, eager over lazy", Value: over(pick(ucxConnections, "connect=eager,peers=32", "qp_bytes"), pick(ucxConnections, "connect=lazy,peers=32", "qp_bytes")), Unit: Times, Says: "all with all", Place: "section VI", Rule: between(2, 100)},
			}},
	}
}
