// Package compare sets this perftest beside ucx_perftest: the same test, size and
// data layout on the same two processors, in turns.
//
// Method. A pair is one run of each program, 0.15 s by the clock, in an order that
// changes from pair to pair. Before, between and after the two a cache line is
// handed from one processor to the other: on virtual machines the host moves
// processors, and the same binary is three to seven times slower while they are far
// apart. A pair counts if its own three probes agree within the factor [agreement];
// they also tell its [Phase], near or far. Each phase has a row of its own, whose ratio
// is the median of the ratios of its pairs. Pairs are repeated until one phase has
// enough; if no pair counts, those that do not have a row that says so.
//
// Work on the other hardware thread of a core halves its speed for seconds at a time,
// which no probe of hand-overs shows. Therefore the ratio of the best run of each side
// is given too. Idle-class spinners keep the processors from halting in the meantime.
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
