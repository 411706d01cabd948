package self

import (
	"sync"

	"golang.org/x/sys/unix"
)

// Commands of membarrier(2), from the uapi header linux/membarrier.h.
const (
	membarrierPrivateExpedited         = 1 << 3
	membarrierRegisterPrivateExpedited = 1 << 4
)

// expedited reports whether barrier works on this system. An operation stores its guard and then
// loads the key; a full barrier between the two would cost more than the rest of the
// operation. Instead Mem.Close, which is rare, executes a barrier on every thread.
var expedited = sync.OnceValue(func() bool {
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierRegisterPrivateExpedited, 0, 0)
	return errno == 0 && barrier()
})

// barrier executes a full barrier on every running thread of the process.
func barrier() bool {
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierPrivateExpedited, 0, 0)
	return errno == 0
}
