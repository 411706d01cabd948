package guard

import (
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/mmio"
)

// A Word is the guard of a visitor. It contains the region that the visitor is accessing:
//
//	bits  0..29  region; 0: in none
//	bits 30..63  number of visits that have ended
//
// It is in memory that the owner maps. One goroutine at a time makes visits with it.
type Word struct{ v uint64 }

const (
	// RegionMask is the bits of the region.
	RegionMask = 1<<regionBits - 1
	regionBits = 30
	step       = 1 << regionBits // a constant that an instruction can add
)

// Enter begins a visit to a region, 1 to RegionMask, and returns the value for Leave. The visitor must
// load the key after that. With fenced, it is a full barrier; without, the owner must execute a
// barrier on the visitor's CPU before it loads the guards.
func (w *Word) Enter(region uint64, fenced bool) (idle uint64) {
	idle = atomic.LoadUint64(&w.v)
	if fenced {
		atomic.StoreUint64(&w.v, idle|region)
		return idle
	}
	mmio.StoreRelease64(unsafe.Pointer(w), idle|region) // 8 bytes, aligned, alive as w is
	return idle
}

// Leave ends the visit, after its last access. It pairs with the load in Visit.Over.
func (w *Word) Leave(idle uint64) { mmio.StoreRelease64(unsafe.Pointer(w), idle+step) }

// Visits returns the number of visits that have ended, and the region of the one in progress; 0 if there is none.
func (w *Word) Visits() (ended, region uint64) {
	v := w.load()
	return v >> regionBits, v & RegionMask
}

// Idle reports whether no visit is in progress. For the owner the rules of [Look] apply.
func (w *Word) Idle() bool { return w.load()&RegionMask == 0 }

func (w *Word) load() uint64 { return atomic.LoadUint64(&w.v) }
