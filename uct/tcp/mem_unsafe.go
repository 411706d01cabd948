package tcp

import "unsafe"

// addrOf is the address of the first byte of b, as peers name it. The number is
// compared with others and never turned back into a pointer.
func addrOf(b []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}
