// Package bulk copies what one processor has written and another one reads.
package bulk

import "unsafe"

// Copy is copy(dst, src), by the instructions that are fastest between two cores
// for the length. The pieces may not overlap.
func Copy(dst, src []byte) int {
	if len(src) >= stringMin {
		return copyLong(dst, src)
	}
	return copy(dst, src)
}

// copyLong is Copy for what may be long.
//
//go:noinline
func copyLong(dst, src []byte) int {
	n := min(len(dst), len(src))
	if n < stringMin || n > stringMax {
		return copy(dst, src)
	}
	// n bytes from the beginning of either slice are in it.
	copyString(unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(src)), n)
	return n
}
