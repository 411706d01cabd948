// Package ring has bounded queues of small integers between goroutines of one
// process: SPSC for one producer and one consumer, MPSC for many producers. What
// is passed are indexes or handles; pointers in a ring would cost write barriers.
//
//	        head                 tail
//	         v                    v
//	[ free | x0 | x1 | x2 | x3 | free | free | free ]      slot = cursor mod depth
//	         ^ the consumer       ^ the producer
//
// Cursors count elements and never wrap in practice (64 bits). Each is written by
// one side only, on cache lines of its own, by a release store that pairs with the
// acquire load of the other side. Both sides remember what they last saw of the
// other's cursor, and look again only when that does not suffice: a batch moves
// one cache line and not two for each element.
//
// No call blocks or allocates. One goroutine at a time may be a consumer, and for
// SPSC one a producer; handing a role over needs an order made by the program.
package ring
