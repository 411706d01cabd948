package sp

import "unsafe"

// wordLen are the bytes of a value.
const wordLen = 8

// bytesOf is the memory of v as bytes, in the machine's order.
func bytesOf(v []float64) []byte {
	// unsafe: a slice of the same memory; every bit pattern is a float64 and a byte.
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*wordLen)
}

// valuesOf is the inverse of bytesOf. b is aligned for a float64, and of a multiple of its length.
func valuesOf(b []byte) []float64 {
	// unsafe: as in bytesOf; the alignment is what allocator promises.
	return unsafe.Slice((*float64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/wordLen)
}
