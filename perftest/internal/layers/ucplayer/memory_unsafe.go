package ucplayer

import "unsafe"

// offset returns the offset of the first multiple of align, a power of two, in b. The Go heap does not move, so the
// address remains valid.
func offset(b []byte, align int) int {
	return int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & uintptr(align-1))
}
