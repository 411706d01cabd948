// Package ranksmodel predicts the benchmarks of OSU on a cluster: ranks run the collective operations of ucpgroup over
// the real ucp, in virtual time, over transports that call verbs (rc, ud) and that write the queues themselves (rc_mlx5,
// ud_mlx5). Ranks of one node reach each other over sm.
//
// What a call of the software takes is the number of its instructions, as perftest instructions counts them, times
// cycles per instruction, which are an assumption, over the clock rate. What waits for the device is not in that
// number and is that of the model: barriers and writes to its registers, the way over PCIe and the wire,
// copies, by their length, and cache lines that another core has written.
package ranksmodel
