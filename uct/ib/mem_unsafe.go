package ib

import "unsafe"

// addrOf is the address of the first byte of b, as SGEs name it. The number is
// compared and given to a device, never turned back into a pointer.
func addrOf(b []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}
