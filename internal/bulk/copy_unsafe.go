// Package bulk copies data that one CPU has written and another CPU reads.
package bulk

import "unsafe"

// Copy is copy(dst, src) with the instructions that are fastest between two cores for
// the length. dst and src must not overlap.
func Copy(dst, src []byte) int {
	if len(src) >= stringMin {
		return copyLong(dst, src)
	}
	return copy(dst, src)
}

// copyLong is Copy for lengths that may require REP MOVSB.
//
//go:noinline
func copyLong(dst, src []byte) int {
	n := min(len(dst), len(src))
	if n < stringMin || n > stringMax {
		return copy(dst, src)
	}
	// Both slices have n bytes or more.
	copyString(unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(src)), n)
	return n
}
