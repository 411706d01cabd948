package timing

import (
	"fmt"

	"github.com/gucx/gucx/ucs"
)

// Params are the costs of the model. ConnectX4 sets them; a study changes one of them and observes the effect.
type Params struct {
	// PostCall is the time of a post call without its work requests, and of a step of a thread that neither posts nor
	// polls.
	PostCall Time
	// Jitter is the maximum additional time of a call of post or poll: each takes a random part of it, which depends on
	// the seed of the run. 0, the default, is none.
	Jitter Time
	// WQEBuild is the time to write a basic block of a work request.
	WQEBuild Time
	// DoorbellRecord is the time of the store of the doorbell record with its barriers, once per post.
	DoorbellRecord Time
	// RegisterWrite is the time of the core for one write of up to 64 bytes to a UAR page: the store to the
	// write-combining buffer and its flush. A doorbell takes one, BlueFlame one for each basic block.
	RegisterWrite Time
	// PollCall is the time of a poll without result; CQERead is added for each completion.
	PollCall, CQERead Time
	// Atomic is the time of a locked instruction on a line that the core owns: that of a lock without contention.
	Atomic Time
	// LineTransfer is the time to get a cache line that another core has modified.
	LineTransfer Time
	// QPLines and CQLines are the numbers of cache lines with state of a queue that are transferred when another thread
	// uses it, in addition to its lock: indexes and doorbell record.
	QPLines, CQLines int
	// RetireLines is the number of cache lines of QPLines that a poll writes for a completion of the queue, and that
	// its next post needs: the index of retired work requests. A thread that polls for another moves them to its core
	// while it owns the lock of the CQ.
	RetireLines int

	// PCIeOneWay is the time of a posted write from the core to the NIC.
	PCIeOneWay Time
	// PCIeRead is the round trip of a DMA read of one cache line.
	PCIeRead Time
	// CQEWrite is the time from the NIC until a core can see a completion.
	CQEWrite Time
	// PCIeBandwidth is the bandwidth of one direction in bytes per second, with headers; TLPHeader is the number of
	// bytes that a packet of at most TLPPayload has in addition to its payload.
	PCIeBandwidth, TLPHeader, TLPPayload int64
	// ReadTags is the maximum number of outstanding DMA reads.
	ReadTags int
	// WQERead is the maximum length of a DMA read for work requests in bytes, and WQEReads the maximum number of
	// outstanding ones of a queue.
	WQERead  int64
	WQEReads int

	// MessageGap is the time between two messages of the whole NIC.
	MessageGap Time
	// Rails is the number of concurrent address translations of the NIC, each for a cache line of its own; RailLookup
	// is the time of one.
	Rails      int
	RailLookup Time

	// AckRoundTrip is the time from the last bit of a message to its acknowledgement, including both ways through the
	// switch.
	AckRoundTrip Time
	// LinkBandwidth is the bandwidth of the wire in bytes per second; PacketHeader is the number of bytes that a packet
	// of at most PacketPayload has in addition to its payload.
	LinkBandwidth, PacketHeader, PacketPayload int64

	// CopyBandwidth is the bandwidth of a core that copies between buffers, in bytes per second; see Model.Copy.
	CopyBandwidth int64
}

// ConnectX4 is a ConnectX-4 EDR adapter beside a 16-core Haswell CPU at a fixed
// 2.5 GHz, the machine of the endpoints paper ("Scalable Communication Endpoints for
// MPI+Threads Applications", Zambre et al., ICPADS 2018). No value comes from a measurement
// in which threads share an object.
//
//	[B]  Zambre et al., "Breaking Band: A Breakdown of High-Performance Communication",
//	     ICPP 2019: a ConnectX-4 beside a ThunderX2 at 2 GHz, by hardware counters and a
//	     PCIe analyzer. Its CPU differs: see docs/papers/endpoints.md.
//	[H]  Molka et al., "Cache Coherence Protocol and Memory Performance of the Intel
//	     Haswell-EP Architecture", ICPP 2015.
//	[P]  Neugebauer et al., "Understanding PCIe Performance for End Host Networking",
//	     SIGCOMM 2018.
//	     Values of [B], [H] and [P] are from notes of the first version, and were not checked
//	     against the papers again.
//	[E]  the endpoints paper itself, where it cites the data sheet.
//	[S]  PCI Express 3.0 and InfiniBand specifications: arithmetic.
//	[C]  calibrated on the case without sharing: with a smaller value, sixteen threads would not be
//	     fastest with lists of 32 and one completion in 64, as in [E], section IV.
//	[A]  assumed: no public figure is known.
func ConnectX4() Params {
	return Params{
		PostCall:       ns(14.99),         // [B] "other" of the post
		WQEBuild:       ns(27.78),         // [B] preparation of a message descriptor
		DoorbellRecord: ns(17.33 + 21.07), // [B] both barriers
		RegisterWrite:  ns(94.25),         // [B] PIO copy of 64 bytes
		PollCall:       ns(20.54),         // [A] a third of [B] 61.63, progress with one completion
		CQERead:        ns(41.09),         // [A] the rest of it
		Atomic:         ns(8),             // [A] 20 cycles, as instruction tables for Haswell have LOCK XADD
		LineTransfer:   ns(53),            // [H] a line modified by another core of the socket
		QPLines:        2,                 // producer index, doorbell record: layout of libmlx5
		CQLines:        2,                 // consumer index, doorbell record
		RetireLines:    1,                 // head and tail of a send queue are on one: layout of libmlx5

		PCIeOneWay:    ns(137.49),          // [B]
		PCIeRead:      ns(547),             // [P] median of 64 bytes, Xeon E5 v3; [B] sums to 516
		CQEWrite:      ns(137.49 + 240.96), // [B] PCIe, then root complex to memory
		PCIeBandwidth: 15_753_846_153,      // [S] generation 3, 16 lanes, 128b/130b
		TLPHeader:     24,                  // [S] with framing, sequence number and CRC
		TLPPayload:    256,                 // [P] usual maximum payload
		ReadTags:      256,                 // [S] extended tags, 8 bits
		WQERead:       512,                 // [S] default maximum read request
		WQEReads:      2,                   // [C] the fewest, with queues of depth 64; one does with 128

		MessageGap: Second / 150_000_000, // [E] 150 million messages a second
		Rails:      8,                    // [A]
		RailLookup: ns(20),               // [A] about one read of the last-level cache [H]

		AckRoundTrip:  2 * ns(274.81+108), // [B] wire, switch
		LinkBandwidth: 12_500_000_000,     // [S] EDR, 100 Gb/s
		PacketHeader:  42,                 // [S] LRH, BTH, RETH, ICRC, VCRC
		PacketPayload: 4096,               // [S] MTU

		CopyBandwidth: 10_000_000_000, // [A] of one core, from and to its caches
	}
}

// ConnectXDDR is a ConnectX DDR adapter (MT25418) beside an Opteron 8350 of 2 GHz, the
// machine of the TupleQ paper ("TupleQ: Fully-Asynchronous and Zero-Copy MPI over
// InfiniBand", Koop, Sridhar, Panda, IPDPS 2009). There is no breakdown of such a machine. The CPU
// costs of ConnectX4 were measured at the same clock rate; they are used here, as are all values of
// ConnectX4 that are not listed. No value comes from a result of the paper. With these values a
// 1-byte message to a polling program takes 1.2 us, and large ones have 1.6 GB/s; the paper has
// latencies "approaching 1usec and bandwidth near 1.5GB/sec".
//
//	[S]  PCI Express 1.1 and InfiniBand specifications: arithmetic.
//	[A]  assumed: no public figure is known.
func ConnectXDDR() Params {
	p := ConnectX4()
	p.PCIeBandwidth = 2_000_000_000 // [S] generation 1, 8 lanes, 8b/10b
	p.TLPPayload = 128              // [A] as chipsets of its time
	p.WQERead = 128                 // [A] with it
	p.LinkBandwidth = 2_000_000_000 // [S] 4X DDR, 20 Gb/s, 8b/10b
	p.PacketHeader = 30             // [S] LRH, BTH, ICRC, VCRC, and some with RETH
	p.PacketPayload = 2048          // [S] MTU of that generation
	p.CopyBandwidth = 2_500_000_000 // [A] between buffers that are not in the first-level cache
	return p
}

// ConnectX6 is a ConnectX-6 HDR100 adapter beside a Broadwell CPU of 2.6 GHz, the machine of the study of
// direct verbs ("In-Depth Evaluation of a Lower-Level Direct-Verbs API on InfiniBand-based Clusters", Michalowicz et al., 2023).
// Values that are not listed are those of ConnectX4, which has the same link rate, the same generation of PCIe, and the
// previous generation of the CPU.
//
//	[D]  NVIDIA, ConnectX-6 InfiniBand/VPI data sheet.
func ConnectX6() Params {
	p := ConnectX4()
	p.MessageGap = Second / 215_000_000 // [D] 215 million messages a second
	return p
}

// validate returns an error for values with which the model cannot run.
func (p *Params) validate() error {
	for _, c := range []struct {
		name string
		v    int64
	}{
		// Values that must be positive: times, so that clocks advance, and divisors.
		{"PostCall", int64(p.PostCall)}, {"PollCall", int64(p.PollCall)},
		{"PCIeBandwidth", p.PCIeBandwidth}, {"TLPPayload", p.TLPPayload}, {"ReadTags", int64(p.ReadTags)},
		{"WQERead", p.WQERead}, {"WQEReads", int64(p.WQEReads)}, {"Rails", int64(p.Rails)},
		{"LinkBandwidth", p.LinkBandwidth}, {"PacketPayload", p.PacketPayload}, {"CopyBandwidth", p.CopyBandwidth},
	} {
		if c.v < 1 {
			return fmt.Errorf("timing: %s %d: want at least 1: %w", c.name, c.v, ucs.ErrInvalidParam)
		}
	}
	for _, v := range []Time{p.WQEBuild, p.DoorbellRecord, p.RegisterWrite, p.CQERead, p.Atomic, p.LineTransfer,
		Time(p.QPLines), Time(p.CQLines), Time(p.RetireLines), p.PCIeOneWay, p.PCIeRead, p.CQEWrite, Time(p.TLPHeader),
		p.MessageGap, p.RailLookup, p.AckRoundTrip, Time(p.PacketHeader), p.Jitter} {
		if v < 0 {
			return fmt.Errorf("timing: a negative cost, %d: %w", v, ucs.ErrInvalidParam)
		}
	}
	return nil
}
