//go:build !race

package race

import "unsafe"

// Enabled says whether the race detector is built in.
const Enabled = false

// Acquire makes all that happened before a Release of the same address happen
// before what follows, for the race detector; nothing in this build.
func Acquire(unsafe.Pointer) {}

// Release publishes to later Acquires of the same address, for the race
// detector; nothing in this build.
func Release(unsafe.Pointer) {}

// ReadRange tells the race detector of a read; nothing in this build.
func ReadRange(unsafe.Pointer, int) {}

// WriteRange tells the race detector of a write; nothing in this build.
func WriteRange(unsafe.Pointer, int) {}
