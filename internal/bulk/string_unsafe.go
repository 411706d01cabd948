//go:build !amd64 || race || purego

package bulk

import (
	"math"
	"unsafe"
)

// An empty range: Copy uses the copy of the Go runtime for each length.
const (
	stringMin = math.MaxInt
	stringMax = 0
)

// copyString is not called, because the range is empty.
func copyString(dst, src unsafe.Pointer, n int) {
	copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n))
}
