package sm

import (
	"golang.org/x/sys/unix"
)

// Commands of membarrier(2), from the uapi header linux/membarrier.h.
const (
	membarrierGlobalExpedited         = 1 << 1
	membarrierRegisterGlobalExpedited = 1 << 2
)

// A sender that has stored a message must then look whether the receiver sleeps, a
// receiver that has given slots back whether the sender does,
// and a writer that has raised its guard must then look whether the key still
// holds. Between a store and a later load of another place every CPU needs a full
// barrier, which costs a message more than all the rest. Instead the other side,
// which acts rarely, runs membarrier(2): when it returns, every running thread of
// every registered process has passed a full barrier.
//
// An iface that sleeps often has its peers pass real barriers for a while: see noteSleep.
//
// Where a process cannot register, or the other cannot call, the barriers are
// real: see producer.fenced, outLink.fullBarrier and inLink.look.

// expedited registers this process, and reports whether membarrier works here.
func expedited() bool {
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierRegisterGlobalExpedited, 0, 0)
	return errno == 0 && barrier()
}

// barrier makes every registered process pass a full barrier.
func barrier() bool {
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobalExpedited, 0, 0)
	return errno == 0
}
