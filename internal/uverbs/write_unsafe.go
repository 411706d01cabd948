package uverbs

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// writeBrief is unix.Write, except that the goroutine keeps its P during the call. data must not be empty.
func writeBrief(fd int, data []byte) (int, error) {
	// The conversion is in the argument list, so data is live and does not move during the call.
	n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(data))), uintptr(len(data)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
