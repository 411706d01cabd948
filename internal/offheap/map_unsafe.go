//go:build !race

package offheap

import "unsafe"

// wholeMapping undoes the cut to the length that was asked for: the mapping goes
// on to the end of its last page, and unix.Munmap wants it as it was made.
func wholeMapping(mem []byte) []byte {
	return unsafe.Slice(unsafe.SliceData(mem), roundToPage(len(mem)))
}
