package memtp

import "unsafe"

// addrOf returns the address of the first byte of b. The result is only a number; the region keeps b alive.
func addrOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// pageAligned returns n zeroed bytes that start on a page.
func pageAligned(n int) []byte {
	b := make([]byte, n+pageSize)
	skip := int(-addrOf(b) & (pageSize - 1))
	return b[skip : skip+n : skip+n]
}
