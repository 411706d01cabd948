package ib

import "unsafe"

// addrOf returns the address of the first byte of b, as in SGEs. The number is compared and passed
// to a device, never converted back to a pointer.
func addrOf(b []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}
