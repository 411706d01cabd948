package tcp

import "unsafe"

// addrOf returns the address of the first byte of b, as peers use it. The number is only compared
// and never converted back into a pointer.
func addrOf(b []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}
