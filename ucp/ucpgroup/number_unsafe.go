package ucpgroup

import "unsafe"

// Number is what reductions work on.
type Number interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~int |
		~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uint | ~uintptr |
		~float32 | ~float64
}

// Bytes is the memory of s, for the operations that move bytes. It is of the byte order of this
// machine, which must be that of all ranks.
func Bytes[T Number | ~complex64 | ~complex128](s []T) []byte {
	var zero T
	// Numbers hold no pointers, and any alignment is enough for bytes (unsafe.Pointer rule 1).
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(zero)))
}

// numbers is the inverse of Bytes. b is part of what Bytes has returned, or alignedBytes, and
// begins at a multiple of the size of T in it; so it is aligned for T.
func numbers[T Number](b []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(zero)))
}

// sizeOf is the size of a number in bytes.
func sizeOf[T Number]() int {
	var zero T
	return int(unsafe.Sizeof(zero))
}

// alignedBytes are n bytes that are aligned for every Number.
func alignedBytes(n int) []byte { return Bytes(make([]uint64, (n+7)/8))[:n] }
