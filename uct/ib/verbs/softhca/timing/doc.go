// Package timing is a discrete-event model of the path between processor and NIC,
// in virtual time: what a post and a poll cost a thread, and when the completion of
// a work request can be seen. The software HCA drives it with the work requests
// that it executes; threads are step functions that run one at a time, the one with
// the smallest clock first.
//
//	thread   call, QP lock, WQEs, doorbell record, register lock, register write, poll, CQ lock, CQEs
//	  |                                       UAR page: one register at a time
//	  v  posted write over PCIe                                     ^
//	NIC      WQEs fetched by DMA, unless they came with the         |
//	         doorbell; payload read by DMA, unless inline, after    |
//	         a translation on the rail of its cache line;           |
//	         message pipeline, wire, acknowledgement ---- CQE by DMA
//
// A resource that takes one at a time (lock, UAR page, rail, PCIe direction,
// pipeline, wire) is booked in the order in which it is asked for, at the event that
// asks, so a booking never has to be undone. Times are integers, in picoseconds:
// they add up without rounding, and a run depends on its inputs and its seed only.
// Nothing here reads a clock.
//
// The model is told of objects and of addresses, never what they are used for: two
// threads interfere because they ask for the same lock, page, rail or link.
//
// A model from New has no receiver: a message takes effect when it is posted, and is
// acknowledged at once. One from NewNetwork has it take effect when it arrives.
//
// # What it leaves out
//
// The caches of the NIC (contexts, translations: every lookup hits), switches besides
// their latency, retransmission other than for want of a receive, frequency changes, interrupts, and
// instruction-level overlap: each cost of a thread is spent after the one before.
package timing
