package rxe

import "unsafe"

// addressOf returns the address of the first byte of b, for a command to the kernel. The caller keeps b alive.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
