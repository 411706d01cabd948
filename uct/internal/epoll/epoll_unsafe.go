package epoll

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// pollNow polls the epoll descriptor without waiting. The pointer is made in the argument list of
// the call (unsafe rule 4).
func pollNow(epfd int, ev []unix.EpollEvent) int {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epfd),
		uintptr(unsafe.Pointer(unsafe.SliceData(ev))), uintptr(len(ev)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}
