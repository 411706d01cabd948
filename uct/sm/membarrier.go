package sm

import (
	"golang.org/x/sys/unix"
)

// Commands of membarrier(2), from the uapi header linux/membarrier.h.
const (
	membarrierGlobalExpedited         = 1 << 1
	membarrierRegisterGlobalExpedited = 1 << 2
)

// A sender that has stored a message must then check whether the receiver sleeps. A
// receiver that has returned slots must check whether the sender sleeps.
// A peer that has set its guard must then check whether the key is still valid. Between a store and a later load of another
// word every CPU needs a full
// barrier, which would cost more than the rest of a message. Instead the other side,
// which needs the order only rarely, calls membarrier(2): when it returns, every running thread of
// every registered process has executed a full barrier.
//
// If an iface sleeps often, its peers temporarily execute real barriers: see countSleep.
//
// If a process cannot register, or the other side cannot call membarrier, the barriers are
// real: see producer.fenced, outLink.fullBarrier and inLink.senderState.

// expedited registers this process, and reports whether membarrier works on this system.
func expedited() bool {
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierRegisterGlobalExpedited, 0, 0)
	return errno == 0 && barrier()
}

// barrier executes a full barrier in every registered process.
func barrier() bool {
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobalExpedited, 0, 0)
	return errno == 0
}
