//go:build !race

package race

import "unsafe"

// Enabled reports whether this is a build with -race.
const Enabled = false

// Acquire does nothing in this build. With the race detector, everything before a Release of the same address
// happens before the code after Acquire.
func Acquire(unsafe.Pointer) {}

// Release does nothing in this build. With the race detector, it synchronizes with later Acquires of the same address.
func Release(unsafe.Pointer) {}

// ReleaseToPeers does nothing in this build. With the race detector, it synchronizes with later calls of AcquireFromPeers.
func ReleaseToPeers() {}

// AcquireFromPeers does nothing in this build. With the race detector, everything before a ReleaseToPeers happens before the code
// after it.
func AcquireFromPeers() {}

// ReadRange reports a read to the race detector; nothing in this build.
func ReadRange(unsafe.Pointer, int) {}

// WriteRange reports a write to the race detector; nothing in this build.
func WriteRange(unsafe.Pointer, int) {}
