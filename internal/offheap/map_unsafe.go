//go:build !race

package offheap

import "unsafe"

// wholeMapping returns the mapping of a block, up to the end of its last page, as unix.Mmap has returned it and
// unix.Munmap requires it.
func wholeMapping(mem []byte) []byte {
	return unsafe.Slice(unsafe.SliceData(mem), roundToPage(len(mem)))
}
