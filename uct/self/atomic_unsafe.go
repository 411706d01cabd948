package self

import (
	"unsafe"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/memop"
)

// wordAt checks an atomic operation and returns its word and the results of at.
func (e *endpoint) wordAt(set uct.AtomicOps, op uct.AtomicOp, size int, raddr uint64, key uct.RKey) (unsafe.Pointer, uint64, error) {
	if err := memop.CheckAtomic(set, op, size, raddr); err != nil {
		return nil, 0, err
	}
	b, before, err := e.at(key, raddr, size, uct.AccessRemoteAtomic)
	return unsafe.Pointer(unsafe.SliceData(b)), before, err
}

// AtomicPost implements uct.Atomics.
func (e *endpoint) AtomicPost(op uct.AtomicOp, size int, value, raddr uint64, key uct.RKey) error {
	p, before, err := e.wordAt(memop.PostOps, op, size, raddr, key)
	if err != nil {
		return err
	}
	memop.Atomic(p, op, size, value)
	e.peer.guard.Leave(before)
	return nil
}

// AtomicFetch implements uct.Atomics.
func (e *endpoint) AtomicFetch(op uct.AtomicOp, size int, value uint64, result *uint64, raddr uint64, key uct.RKey, _ *uct.Completion) (bool, error) {
	p, before, err := e.wordAt(memop.PostOps, op, size, raddr, key)
	if err != nil {
		return false, err
	}
	*result, _ = memop.Atomic(p, op, size, value)
	e.peer.guard.Leave(before)
	return false, nil
}

// AtomicCSwap implements uct.Atomics.
func (e *endpoint) AtomicCSwap(size int, compare, swap uint64, result *uint64, raddr uint64, key uct.RKey, _ *uct.Completion) (bool, error) {
	p, before, err := e.wordAt(memop.FetchOps, uct.AtomicCSwap, size, raddr, key)
	if err != nil {
		return false, err
	}
	*result = memop.CSwap(p, size, compare, swap)
	e.peer.guard.Leave(before)
	return false, nil
}
