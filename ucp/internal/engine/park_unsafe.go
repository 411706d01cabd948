package engine

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// epollNow is epoll_wait(2) with a timeout of 0. As it does not block, it is a raw system call: before others the scheduler wakes
// its monitor thread, if that sleeps.
func epollNow(epfd int, events []unix.EpollEvent) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epfd),
		uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
