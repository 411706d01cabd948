// Package compare sets this perftest beside ucx_perftest: the same test, size and
// data layout on the same two processors, in turns.
//
// Method. A pair is one run of each program, 0.15 s by the clock, in an order that
// changes from pair to pair. Before, between and after the two a cache line is
// handed from one processor to the other: on virtual machines the host moves
// processors, and the same binary is three to seven times slower while they are far
// apart. A pair is near if none of its three probes is longer than [nearFactor] times
// the best one seen. Of the near pairs those count whose runs both lie within
// [spread] of the best run of their side: the same rule for both sides. Pairs are
// repeated until enough count. Idle-class spinners keep the processors from halting
// in the meantime.
//
// Figures of both sides are brought to nanoseconds for one operation:
//
//   - ucx_perftest: one over its overall message rate, which for a ping-pong is
//     counted in each direction, so that it is one way, half the round trip. MB of
//     UCX are 2^20 bytes and are not used; bandwidth here is in 10^9 bytes.
//   - this perftest: the mean of the loop without clock readings. It has the cost
//     of the empty loop taken off; that is added again, because UCX's figures
//     contain that of theirs.
//
// A ping-pong in loopback is one message to itself for each iteration, of which
// both programs report half.
package compare
