// Package overlap measures the share of CPU time that remains for the program during a transfer:
// application availability and overhead, as the Sandia micro-benchmarks define host
// processor overhead (SMB, mpi_overhead: its documentation and its source). An iteration of the
// measured side, and of the other one:
//
//	isend   barrier, send, work, wait          post a receive, barrier, wait
//	irecv   post a receive, barrier, work, wait     barrier, send, wait
//
//	base        mean time of an iteration with negligible work
//	iteration   time with work, which is doubled until this is more than twice base
//	work        time of the barrier and the work without the message
//	overhead    iteration - work
//	availability  1 - overhead / base
//
// The barrier is in base and in work. With Both, which the benchmark does not have, the other
// side works as long between its post and its wait, as the ranks of a program do.
package overlap
