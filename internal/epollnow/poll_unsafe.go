// Package epollnow polls an epoll descriptor without waiting.
package epollnow

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Poll stores the events of the readable descriptors in events, and returns their number. It is epoll_wait(2) with a timeout of 0, as
// a raw system call, because it does not block: before others the scheduler wakes its monitor thread, if that sleeps. The pointer
// is made in the argument list of the call (unsafe rule 4). events must not be empty. Any goroutine may call Poll, with events of
// its own.
func Poll(epfd int, events []unix.EpollEvent) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epfd),
		uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
