package memop

import (
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/uct"
)

// PostOps and FetchOps are the operations that Atomic and CSwap support.
var (
	PostOps  = uct.AtomicSet(uct.AtomicAdd, uct.AtomicAnd, uct.AtomicOr, uct.AtomicXor, uct.AtomicSwap)
	FetchOps = PostOps | uct.AtomicSet(uct.AtomicCSwap)
)

// Atomic applies op, one of PostOps, to the aligned integer of size bytes (4 or 8) at p and returns
// the old value. For any other op or size it has no effect, and ok is false.
func Atomic(p unsafe.Pointer, op uct.AtomicOp, size int, value uint64) (old uint64, ok bool) {
	switch {
	case !PostOps.Has(op):
		return 0, false
	case size == 8:
		return atomic64((*uint64)(p), op, value), true
	case size == 4:
		return uint64(atomic32((*uint32)(p), op, uint32(value))), true
	}
	return 0, false
}

func atomic64(p *uint64, op uct.AtomicOp, value uint64) uint64 {
	switch op {
	case uct.AtomicAdd:
		return atomic.AddUint64(p, value) - value
	case uct.AtomicAnd:
		return atomic.AndUint64(p, value)
	case uct.AtomicOr:
		return atomic.OrUint64(p, value)
	case uct.AtomicSwap:
		return atomic.SwapUint64(p, value)
	}
	for { // AtomicXor: no instruction returns the old value
		old := atomic.LoadUint64(p)
		if atomic.CompareAndSwapUint64(p, old, old^value) {
			return old
		}
	}
}

func atomic32(p *uint32, op uct.AtomicOp, value uint32) uint32 {
	switch op {
	case uct.AtomicAdd:
		return atomic.AddUint32(p, value) - value
	case uct.AtomicAnd:
		return atomic.AndUint32(p, value)
	case uct.AtomicOr:
		return atomic.OrUint32(p, value)
	case uct.AtomicSwap:
		return atomic.SwapUint32(p, value)
	}
	for {
		old := atomic.LoadUint32(p)
		if atomic.CompareAndSwapUint32(p, old, old^value) {
			return old
		}
	}
}

// CSwap stores swap in the integer of size bytes (4 or 8) at p if it equals compare. It returns the
// old value.
func CSwap(p unsafe.Pointer, size int, compare, swap uint64) (old uint64) {
	if size == 4 {
		return uint64(cswap32((*uint32)(p), uint32(compare), uint32(swap)))
	}
	word := (*uint64)(p)
	for {
		old = atomic.LoadUint64(word)
		if old != compare || atomic.CompareAndSwapUint64(word, old, swap) {
			return old
		}
	}
}

func cswap32(word *uint32, compare, swap uint32) (old uint32) {
	for {
		old = atomic.LoadUint32(word)
		if old != compare || atomic.CompareAndSwapUint32(word, old, swap) {
			return old
		}
	}
}

// CheckAtomic checks the arguments of an atomic operation by the rules of uct.Atomics.
func CheckAtomic(set uct.AtomicOps, op uct.AtomicOp, size int, raddr uint64) error {
	if size != 4 && size != 8 || raddr&uint64(size-1) != 0 {
		return uct.ErrInvalidParam
	}
	if !set.Has(op) {
		return uct.ErrUnsupported
	}
	return nil
}
