package region

import "unsafe"

// within reports whether inner lies in outer. Both are only compared, not read.
func within(outer, inner []byte) bool {
	if len(inner) == 0 {
		return true
	}
	o, i := uintptr(unsafe.Pointer(unsafe.SliceData(outer))), uintptr(unsafe.Pointer(unsafe.SliceData(inner)))
	return i >= o && i-o <= uintptr(len(outer)) && uintptr(len(inner)) <= uintptr(len(outer))-(i-o)
}

// offset is where inner begins in outer, which it lies in.
func offset(outer, inner []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(inner))) - uintptr(unsafe.Pointer(unsafe.SliceData(outer))))
}
