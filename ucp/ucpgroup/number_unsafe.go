package ucpgroup

import "unsafe"

// Number is the constraint of the element types of reductions.
type Number interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~int |
		~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uint | ~uintptr |
		~float32 | ~float64
}

// Bytes returns the memory of s, for operations on bytes such as Send. Numbers in it have the byte order of this machine, so all
// ranks must have the same byte order.
func Bytes[T Number | ~complex64 | ~complex128](s []T) []byte {
	var zero T
	// Numbers contain no pointers, and bytes need no alignment (unsafe.Pointer, rule 1).
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(zero)))
}

// numbers is the inverse of Bytes. b must be a part of a result of Bytes or alignedBytes, and its offset in that result must be
// a multiple of the size of T, so that b is aligned for T.
func numbers[T Number](b []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(zero)))
}

// sizeOf returns the size of a number in bytes.
func sizeOf[T Number]() int {
	var zero T
	return int(unsafe.Sizeof(zero))
}

// alignedBytes returns n bytes that are aligned for every Number.
func alignedBytes(n int) []byte { return Bytes(make([]uint64, (n+7)/8))[:n] }
