package ucxpeer

import "unsafe"

// lineOffset returns the offset of the first byte of b in its cache line. The address is converted to a number and
// never back to a pointer.
func lineOffset(b []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (cacheLine - 1)
}
