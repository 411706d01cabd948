//go:build arm64 && !purego

package mmio

import "unsafe"

// StoreRecord32 is StoreRelease32 to memory that a device reads, such as a doorbell
// record: a device that loads v also loads the values that were stored before. STLR alone orders the
// loads and stores of this core for other cores, which are in the inner shareable domain;
// a device is in the outer one, so a DMB OSHST precedes it. DMB OSHST orders stores only. STLR orders the
// loads of an entry before the store that returns the entry to the device.
func StoreRecord32(p unsafe.Pointer, v uint32) {
	ToDevice()
	StoreRelease32(p, v)
}
