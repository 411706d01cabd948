//go:build (!amd64 && !arm64) || (amd64 && race) || purego

package mmio

import "unsafe"

// StoreRecord32 is StoreRelease32 to memory that a device reads, such as a doorbell
// record: the device that sees v sees what was stored before, too. amd64 keeps that
// order by itself; machines without assembly here have no such device.
func StoreRecord32(p unsafe.Pointer, v uint32) { StoreRelease32(p, v) }
