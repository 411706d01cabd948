// Package rxe drives the kernel's software RoCE device (rdma_rxe) through package uverbs, without
// libibverbs and cgo. Only the creation of the device requires root:
//
//	rdma link add rxe0 type rxe netdev eth0
//
// The kernel allocates the queues, and this process maps them. It writes work requests to the
// queues and reads completions from them. After each list of sends it makes a system call, because
// rxe runs in the kernel.
//
//	PostSend   work requests -> send ring, one system call for the list
//	PostRecv   receives -> receive ring, no system call
//	Poll       completion ring -> completions, no system call
//	Arm        a system call
//
// Layouts are those of rdma_user_rxe.h and of drivers/infiniband/sw/rxe in the Linux kernel, whose
// driver ABI has version 2.
//
// # What rxe lacks
//
// rxe has no XRC and no thread domains. It moves a QP to ERR if its peer requests an access that is not allowed, and raises no
// asynchronous event then. A UD message without a receive, or longer than it, is dropped without a completion. The keys of
// receives in an SRQ are those of the QP's domain, not of the SRQ's.
//
// # Differences that this package hides
//
//   - rxe leaves the completions of a destroyed QP in the CQ. Close and a move to RESET remove them. If they are of
//     receives from an SRQ, they post these receives again.
//   - rxe does not raise an event for a completion that arrived before Arm. Arm checks the CQ and raises the event.
//   - rxe does not flush a receive that is posted to a QP in ERR. PostRecv moves the QP to ERR again.
//   - rxe retries without a limit if the retry count is 7. Modify replaces 7 by 6.
//   - rxe reports completion flags that package verbs does not define (enum ib_wc_flags of the kernel). Poll clears them.
//
// # Costs
//
// A post takes a lock and a system call, which sends the packets before it returns: several microseconds. The
// kernel pins registered memory and counts it against RLIMIT_MEMLOCK.
package rxe
