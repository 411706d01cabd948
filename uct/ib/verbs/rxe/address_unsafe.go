package rxe

import "unsafe"

// addressOf is the address of the first byte, for the kernel.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
