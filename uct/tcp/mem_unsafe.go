package tcp

import (
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/uct"
)

// addrOf is the address of the first byte of b, as peers name it. The number is
// compared with others and never turned back into a pointer.
func addrOf(b []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

// applyAtomic applies op to the word at the start of b with the CPU's atomics and
// returns the old value. The caller has checked that b has size bytes, 4 or 8,
// and is aligned to them; its memory is a slice that the caller holds, so the
// pointer stays good (unsafe rule 1: conversion between pointer types).
func applyAtomic(b []byte, op uct.AtomicOp, size int, compare, value uint64) uint64 {
	p := unsafe.Pointer(unsafe.SliceData(b))
	if size == 4 {
		w := (*uint32)(p)
		for {
			old := atomic.LoadUint32(w)
			if atomic.CompareAndSwapUint32(w, old, uint32(op.Apply(4, uint64(old), compare, value))) {
				return uint64(old)
			}
		}
	}
	w := (*uint64)(p)
	for {
		old := atomic.LoadUint64(w)
		if atomic.CompareAndSwapUint64(w, old, op.Apply(8, old, compare, value)) {
			return old
		}
	}
}
