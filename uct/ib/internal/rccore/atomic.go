package rccore

import (
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// checkAtomic holds an atomic against what verbs have: add and compare-and-swap
// of 8 bytes.
func checkAtomic(ok bool, size int, raddr uint64) error {
	switch {
	case size != 4 && size != 8:
		return uct.ErrInvalidParam
	case raddr%uint64(size) != 0:
		return uct.ErrInvalidParam
	case size != 8 || !ok:
		return uct.ErrUnsupported
	}
	return nil
}

// AtomicPost implements uct.Atomics. The old value is thrown away.
func (e *EP) AtomicPost(op uct.AtomicOp, size int, value, raddr uint64, key uct.RKey) error {
	if err := checkAtomic(op == uct.AtomicAdd, size, raddr); err != nil {
		return err
	}
	_, err := e.atomic(verbs.OpAtomicFetchAdd, value, 0, nil, raddr, key, nil)
	return err
}

// AtomicFetch implements uct.Atomics.
func (e *EP) AtomicFetch(op uct.AtomicOp, size int, value uint64, result *uint64, raddr uint64, key uct.RKey, c *uct.Completion) (pending bool, err error) {
	if err := checkAtomic(op == uct.AtomicAdd, size, raddr); err != nil {
		return false, err
	}
	return e.atomic(verbs.OpAtomicFetchAdd, value, 0, result, raddr, key, c)
}

// AtomicCSwap implements uct.Atomics.
func (e *EP) AtomicCSwap(size int, compare, swap uint64, result *uint64, raddr uint64, key uct.RKey, c *uct.Completion) (pending bool, err error) {
	if err := checkAtomic(true, size, raddr); err != nil {
		return false, err
	}
	return e.atomic(verbs.OpAtomicCmpSwap, compare, swap, result, raddr, key, c)
}

// atomic posts an atomic. The old value lands in a registered word and goes to
// *result, if any, when the op ends.
func (e *EP) atomic(opcode verbs.Opcode, compareAdd, swap uint64, result *uint64, raddr uint64, key uct.RKey, c *uct.Completion) (pending bool, err error) {
	flags, err := e.admitOp()
	if err != nil {
		return false, err
	}
	it := e.it
	word, ok := it.words.Get()
	if !ok {
		e.refence(flags)
		return false, uct.ErrNoResource
	}
	it.fetchSGE[0] = it.words.SGE(word, 0, 8)
	it.fetch[0].CompareAdd, it.fetch[0].Swap = compareAdd, swap
	o := it.ops.get()
	o.kind, o.word, o.result, o.comp = opAtomic, word, result, c
	return e.postFetch(opcode, flags, raddr, key, o)
}
