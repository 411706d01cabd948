package ucplayer

import "unsafe"

// offset is where the first multiple of align, a power of two, is in b. The Go heap does not move, so
// that the address stays valid.
func offset(b []byte, align int) int {
	return int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & uintptr(align-1))
}
