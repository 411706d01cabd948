//go:build (!amd64 && !arm64) || (amd64 && race) || purego

package mmio

import "unsafe"

// StoreRecord32 is StoreRelease32 to memory that a device reads, such as a doorbell
// record: a device that loads v also loads the values that were stored before. amd64 preserves that
// order; in builds without assembly there is no such device.
func StoreRecord32(p unsafe.Pointer, v uint32) { StoreRelease32(p, v) }
