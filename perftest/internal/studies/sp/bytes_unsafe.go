package sp

import "unsafe"

// wordLen is the length of a value in bytes.
const wordLen = 8

// bytesOf returns the memory of v as bytes, in the byte order of the machine.
func bytesOf(v []float64) []byte {
	// unsafe: a slice of the same memory; every bit pattern is a float64 and a byte.
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*wordLen)
}

// valuesOf is the inverse of bytesOf. b must be aligned for a float64, and its length a multiple of
// wordLen.
func valuesOf(b []byte) []float64 {
	// unsafe: as in bytesOf; the alignment is what allocator promises.
	return unsafe.Slice((*float64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/wordLen)
}
