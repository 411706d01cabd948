package targetop

import (
	"unsafe"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/memop"
)

// apply executes a on a word of its size. It checks the alignment of the word, because the
// address of the peer may have another alignment than the memory of this process. The pointer is valid
// because it is the word of a slice (unsafe rule 1: conversion
// between pointer types).
func (a *Atomic) apply(word []byte) (old uint64, st ucs.Status) {
	p := unsafe.Pointer(unsafe.SliceData(word))
	if uintptr(p)&uintptr(a.Size-1) != 0 {
		return 0, ucs.StatusRemoteInvalid
	}
	if a.Op == uct.AtomicCSwap {
		return memop.CSwap(p, a.Size, a.Compare, a.Value), ucs.StatusOK
	}
	old, _ = memop.Atomic(p, a.Op, a.Size, a.Value)
	return old, ucs.StatusOK
}
