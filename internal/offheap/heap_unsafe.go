//go:build race

package offheap

import (
	"os"
	"unsafe"
)

// obtain allocates at least n bytes on the Go heap at a page boundary. The slice
// keeps the allocation alive; Go does not move heap objects.
func obtain(n int) ([]byte, error) {
	page := os.Getpagesize()
	mem := make([]byte, roundToPage(n)+page)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) & (page - 1)
	return mem[skip : skip+n], nil
}

// unmap does nothing: the garbage collector frees the memory. In the other build it may fail.
func unmap([]byte) error { return nil }
