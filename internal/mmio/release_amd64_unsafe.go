//go:build amd64 && !race && !purego

package mmio

import (
	"sync/atomic"
	"unsafe"
)

// order is loaded before a release store. An atomic load is a plain MOV from a
// line that stays in the L1 cache, and a place that the compiler moves and merges
// no store across: without it two neighbouring stores may become one, and that
// one may straddle a cache line.
var order uint32

// StoreRelease32 stores v so that a thread that sees it by LoadAcquire32 also sees all
// that was stored before. amd64 keeps the order of stores (Intel SDM volume 3,
// memory ordering), so it is a MOV: 0.3 ns against 5 to 30 ns of atomic.Store,
// which is an XCHG that waits for the store buffer. Later loads may overtake it.
// Under the race detector and on other architectures it is the atomic store.
func StoreRelease32(p unsafe.Pointer, v uint32) {
	atomic.LoadUint32(&order)
	*(*uint32)(p) = v
}

// StoreRelease64 is StoreRelease32 for 8 bytes.
func StoreRelease64(p unsafe.Pointer, v uint64) {
	atomic.LoadUint32(&order)
	*(*uint64)(p) = v
}

// StoreRecord32 is StoreRelease32 to memory that a device reads, such as a doorbell
// record: the device that sees v sees what was stored before, too. amd64 keeps that
// order by itself.
func StoreRecord32(p unsafe.Pointer, v uint32) {
	atomic.LoadUint32(&order)
	*(*uint32)(p) = v
}
