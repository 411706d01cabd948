// Package rxe drives the kernel's software RoCE device (rdma_rxe) through package uverbs: no
// libibverbs, no cgo, and no root once the device is there:
//
//	rdma link add rxe0 type rxe netdev eth0
//
// The kernel allocates the queues, and this process maps them. It writes work requests and reads
// completions itself; a system call follows each list of sends, as rxe runs in the kernel.
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
//   - rxe leaves the completions of a destroyed QP in the CQ: Close and a move to RESET remove them, and post the
//     receives among them, which came from an SRQ, again.
//   - rxe does not raise an event for a completion that came before Arm: Arm looks, and raises one itself.
//   - rxe does not flush a receive that is posted to a QP in ERR: PostRecv moves the QP to ERR again.
//   - rxe retries without a limit if the retry count is 7: Modify makes it 6.
//   - The flags of completions are those of the kernel.
//
// # Costs
//
// A post takes a lock and a system call, which sends the packets before it returns: several microseconds. The
// kernel pins registered memory and counts it against RLIMIT_MEMLOCK.
package rxe
