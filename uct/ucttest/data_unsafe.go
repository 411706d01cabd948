package ucttest

import "unsafe"

// adjacent reports whether b starts where a ends. The addresses are compared as
// numbers and not kept.
func adjacent(a, b []byte) bool {
	end := uintptr(unsafe.Pointer(unsafe.SliceData(a))) + uintptr(len(a))
	return end == uintptr(unsafe.Pointer(unsafe.SliceData(b)))
}
