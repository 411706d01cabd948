//go:build !amd64 || race || purego

package bulk

import (
	"math"
	"unsafe"
)

// An empty range: every length goes to the copy of the Go runtime.
const (
	stringMin = math.MaxInt
	stringMax = 0
)

// copyString copies n bytes; not reached.
func copyString(dst, src unsafe.Pointer, n int) {
	copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n))
}
