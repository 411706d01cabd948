// Package timing is a discrete-event model of the path between CPU and NIC, in virtual
// time: the cost of a post and of a poll for a thread, and the time when the completion of
// a work request becomes visible. The software HCA drives it with the work requests
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
// A resource that serves one request at a time (lock, UAR page, rail, PCIe direction,
// pipeline, wire) is booked in the order of the requests, at the event of the request,
// so bookings need not be undone. Times are integers in picoseconds:
// sums are exact, and a run depends only on its inputs and its seed.
// The model reads no clock.
//
// The model knows objects and addresses, and not their purpose: two threads interfere
// because they request the same lock, page, rail or link.
//
// A model from New has no receiver: a message takes effect when it is posted, and is
// acknowledged at once. In a model from NewNetwork it takes effect when it arrives.
//
// # Omissions
//
// The model omits the caches of the NIC (every lookup of a context or translation hits), switches except for
// their latency, retransmission except for lack of a receive, frequency changes, interrupts, and
// instruction-level overlap: the costs of a thread add up.
package timing
