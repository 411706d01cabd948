package data

import "unsafe"

// forged returns b with a length that no memory has: its bytes must not be accessed.
func forged(b []byte, n int) []byte {
	header := struct {
		at       *byte
		len, cap int
	}{unsafe.SliceData(b), n, n}
	return *(*[]byte)(unsafe.Pointer(&header))
}
