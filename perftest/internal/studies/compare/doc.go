// Package compare compares this perftest with ucx_perftest: the same test, size and
// data layout on the same two CPUs, in turns.
//
// Method. A pair is one run of each program, 0.15 s by the clock, in an order that
// changes from pair to pair. Before, between and after the two runs a probe measures the time to
// exchange a cache line between the CPUs: on virtual machines the host migrates
// virtual CPUs, and the same binary is three to seven times slower while they are far
// apart. A pair counts if its three probes agree within the factor [agreement];
// they also determine its [Phase], near or far. Each phase has a row of its own, whose ratio
// is the median of the ratios of its pairs. Pairs are repeated until one phase has
// enough pairs. If no pair counts, all pairs are in a row called "moved".
//
// Work on the other hardware thread of a core halves its speed for seconds at a time,
// which the probes do not show. Therefore the ratio of the best run of each side
// is reported too. Spinning threads of the idle class prevent the CPUs from halting.
//
// Figures of both sides are converted to nanoseconds for one operation:
//
//   - ucx_perftest: the inverse of its overall message rate. For a ping-pong UCX
//     counts the messages in both directions, so this is half the round trip. MB of
//     UCX are 2^20 bytes and are not used; bandwidth here is in 10^9 bytes.
//   - this perftest: the mean of the loop without clock readings. perftest subtracts the cost
//     of the empty loop; it is added again here, because UCX's figures
//     contain the cost of UCX's loop.
//
// A ping-pong in loopback is one message to itself for each iteration, of which
// both programs report half.
package compare
