package memprot

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mincore tells which pages of mem are resident. Both slices are kept alive by the
// call (unsafe.Pointer rule 4).
func mincore(mem, resident []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(mem))), uintptr(len(mem)),
		uintptr(unsafe.Pointer(unsafe.SliceData(resident))))
	if errno != 0 {
		return errno
	}
	return nil
}
