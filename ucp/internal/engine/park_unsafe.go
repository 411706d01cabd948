package engine

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// epollNow is epoll_wait(2) without a timeout. The scheduler is not told of the system call, which does not block: telling it
// wakes its monitor thread when the process was idle.
func epollNow(epfd int, events []unix.EpollEvent) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epfd),
		uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
