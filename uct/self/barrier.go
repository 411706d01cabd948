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

// expedited says whether barrier works here: an operation stores its guard and then
// loads the key, and a full barrier between the two would cost it more than all the
// rest. Instead who closes memory, which is rare, makes every thread pass one.
var expedited = sync.OnceValue(func() bool {
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierRegisterPrivateExpedited, 0, 0)
	return errno == 0 && barrier()
})

// barrier makes every running thread of the process pass a full barrier.
func barrier() bool {
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierPrivateExpedited, 0, 0)
	return errno == 0
}
