//go:build race

package race

import (
	"runtime"
	"unsafe"
)

// Enabled says whether the race detector is built in.
const Enabled = true

// names stands in for addresses outside the Go heap, which the detector ignores.
// Two addresses that share a name get an order they do not have: that may hide a
// race, and never reports one that is not there.
var names [1 << 14]byte

// name picks the stand-in of p by a multiplicative hash of the address.
func name(p unsafe.Pointer) unsafe.Pointer {
	const golden = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio (Knuth, TAOCP 6.4)
	return unsafe.Pointer(&names[uint64(uintptr(p))*golden>>(64-14)])
}

// Acquire makes all that happened before a Release of the same address happen
// before what follows. Call it after the load that saw the peer's publication.
func Acquire(p unsafe.Pointer) { runtime.RaceAcquire(name(p)) }

// Release publishes to later Acquires of the same address. Call it before the
// store that publishes.
func Release(p unsafe.Pointer) { runtime.RaceReleaseMerge(name(p)) }

// ReadRange tells the detector of a read, by assembly, of n bytes of the Go heap.
func ReadRange(p unsafe.Pointer, n int) { runtime.RaceReadRange(p, n) }

// WriteRange tells the detector of a write, by assembly, of n bytes of the Go heap.
func WriteRange(p unsafe.Pointer, n int) { runtime.RaceWriteRange(p, n) }
