package ucxpeer

import "unsafe"

// lineOffset is the offset of the first byte of b in its cache line. The address becomes a number, which is
// never made a pointer again.
func lineOffset(b []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (cacheLine - 1)
}
