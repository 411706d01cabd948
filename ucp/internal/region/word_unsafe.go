package region

import "unsafe"

// within reports whether inner is a part of outer. It compares addresses and reads no bytes, so converting the pointers to
// uintptr is safe (unsafe.Pointer, rule 2).
func within(outer, inner []byte) bool {
	if len(inner) == 0 {
		return true
	}
	o, i := uintptr(unsafe.Pointer(unsafe.SliceData(outer))), uintptr(unsafe.Pointer(unsafe.SliceData(inner)))
	return i >= o && i-o <= uintptr(len(outer)) && uintptr(len(inner)) <= uintptr(len(outer))-(i-o)
}

// offset returns the offset of inner in outer, in bytes. inner must be a part of outer.
func offset(outer, inner []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(inner))) - uintptr(unsafe.Pointer(unsafe.SliceData(outer))))
}
