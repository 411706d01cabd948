package ucp

import (
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/uct"
)

// within reports whether inner lies in outer. Both are only compared, not read.
func within(outer, inner []byte) bool {
	if len(inner) == 0 {
		return true
	}
	o, i := uintptr(unsafe.Pointer(unsafe.SliceData(outer))), uintptr(unsafe.Pointer(unsafe.SliceData(inner)))
	return i >= o && i-o <= uintptr(len(outer)) && uintptr(len(inner)) <= uintptr(len(outer))-(i-o)
}

// aligned reports whether the first byte of b is aligned for a word of len(b)
// bytes, 4 or 8.
func aligned(b []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%uintptr(len(b)) == 0
}

// applyAtomic does one operation on the word b, of 4 or 8 aligned bytes, and
// returns the old value. It is atomic with CPU atomics of every process that maps
// the memory.
func applyAtomic(b []byte, op uct.AtomicOp, compare, value uint64) uint64 {
	if len(b) == 4 {
		p := (*uint32)(unsafe.Pointer(unsafe.SliceData(b))) // 4 bytes, checked by aligned
		for {
			old := atomic.LoadUint32(p)
			if atomic.CompareAndSwapUint32(p, old, uint32(op.Apply(4, uint64(old), compare, value))) {
				return uint64(old)
			}
		}
	}
	p := (*uint64)(unsafe.Pointer(unsafe.SliceData(b))) // 8 bytes, checked by aligned
	for {
		old := atomic.LoadUint64(p)
		if atomic.CompareAndSwapUint64(p, old, op.Apply(8, old, compare, value)) {
			return old
		}
	}
}
