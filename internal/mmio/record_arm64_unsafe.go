//go:build arm64 && !purego

package mmio

import "unsafe"

// StoreRecord32 is StoreRelease32 to memory that a device reads, such as a doorbell
// record: the device that sees v sees what was stored before, too. STLR alone orders the
// loads and stores of this core for other cores, which are in the inner shareable domain;
// a device is in the outer one, so a DMB OSHST comes first. It orders stores only: that
// loads of an entry come before the store that gives the entry back is STLR's part.
func StoreRecord32(p unsafe.Pointer, v uint32) {
	ToDevice()
	StoreRelease32(p, v)
}
