//go:build race

package race

import (
	"runtime"
	"unsafe"
)

// Enabled reports whether this is a build with -race.
const Enabled = true

// names are used instead of addresses outside the Go heap, which the detector ignores.
// If two addresses have the same name, the detector assumes a synchronization that does not exist: it may miss a
// race, but never reports a false one.
var names [1 << 14]byte

// name returns the element of names for p, by a multiplicative hash of the address.
func name(p unsafe.Pointer) unsafe.Pointer {
	const golden = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio (Knuth, TAOCP 6.4)
	return unsafe.Pointer(&names[uint64(uintptr(p))*golden>>(64-14)])
}

// Acquire makes everything before a Release of the same address happen before the code after
// Acquire. Call it after the load that has returned the published value.
func Acquire(p unsafe.Pointer) { runtime.RaceAcquire(name(p)) }

// Release synchronizes with later Acquires of the same address. Call it before the
// store that publishes.
func Release(p unsafe.Pointer) { runtime.RaceReleaseMerge(name(p)) }

// peers represents all memory that is shared with other processes.
var peers byte

// ReleaseToPeers synchronizes with later calls of AcquireFromPeers. Call it before a store that other processes see, and before a
// message to them over a path that the detector does not know.
func ReleaseToPeers() { runtime.RaceReleaseMerge(unsafe.Pointer(&peers)) }

// AcquireFromPeers makes everything before a ReleaseToPeers happen before the code after it. Call it after the load of
// a message of another process.
func AcquireFromPeers() { runtime.RaceAcquire(unsafe.Pointer(&peers)) }

// ReadRange reports to the detector a read, by assembly, of n bytes of the Go heap.
func ReadRange(p unsafe.Pointer, n int) { runtime.RaceReadRange(p, n) }

// WriteRange reports to the detector a write, by assembly, of n bytes of the Go heap.
func WriteRange(p unsafe.Pointer, n int) { runtime.RaceWriteRange(p, n) }
