package rccore

import (
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// checkAtomic checks an atomic operation. Verbs support fetch-and-add and compare-and-swap of 8
// bytes.
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

// AtomicPost implements uct.Atomics. The device writes the old value to a slot that is never read; the operation
// needs no op.
func (e *EP) AtomicPost(op uct.AtomicOp, size int, value, raddr uint64, key uct.RKey) error {
	if op != uct.AtomicAdd || size != 8 || raddr&7 != 0 {
		return checkAtomic(op == uct.AtomicAdd, size, raddr)
	}
	var flags verbs.SendFlags
	if e.PI-e.CI >= e.Room {
		var err error
		if flags, err = e.admit(); err != nil {
			return err
		}
	}
	it := e.it
	it.fetchSGE[0] = it.discard
	wr := &it.fetch[0]
	wr.Opcode, wr.Flags, wr.CompareAdd = verbs.OpAtomicFetchAdd, flags|e.signal(), value
	wr.RemoteAddr, wr.RKey = raddr, uint32(key)
	e.lastReadPI = e.PI + 1
	return e.post(&it.fetch)
}

// AtomicFetch implements uct.Atomics. The device writes the old value to a slot; if result is not
// nil, the completion copies it there.
func (e *EP) AtomicFetch(op uct.AtomicOp, size int, value uint64, result *uint64, raddr uint64, key uct.RKey, c *uct.Completion) (pending bool, err error) {
	if op != uct.AtomicAdd || size != 8 || raddr&7 != 0 {
		return false, checkAtomic(op == uct.AtomicAdd, size, raddr)
	}
	it := e.it
	wr := &it.fetch[0]
	wr.Opcode, wr.CompareAdd = verbs.OpAtomicFetchAdd, value
	return e.fetch(result, raddr, key, c)
}

// AtomicCSwap implements uct.Atomics.
func (e *EP) AtomicCSwap(size int, compare, swap uint64, result *uint64, raddr uint64, key uct.RKey, c *uct.Completion) (pending bool, err error) {
	if size != 8 || raddr&7 != 0 {
		return false, checkAtomic(true, size, raddr)
	}
	it := e.it
	wr := &it.fetch[0]
	wr.Opcode, wr.CompareAdd, wr.Swap = verbs.OpAtomicCmpSwap, compare, swap
	return e.fetch(result, raddr, key, c)
}

// fetch posts the atomic in it.fetch. If no other operation has a completion, or only atomics with
// the same completion and result, it needs no op.
func (e *EP) fetch(result *uint64, raddr uint64, key uct.RKey, c *uct.Completion) (pending bool, err error) {
	it, w := e.it, &e.waiter
	var flags verbs.SendFlags
	if e.PI-e.CI >= e.Room || it.ops.free == nil {
		if flags, err = e.admitOp(); err != nil {
			return false, err
		}
	}
	if !e.canJoinFetch(c, result, e.PI) {
		o := it.ops.get()
		o.kind, o.result, o.comp = opAtomic, result, c
		it.fetchSGE[0].Addr, it.fetchSGE[0].Length = o.addr, 8
		return e.postFetch(flags, raddr, key, o)
	}
	it.fetchSGE[0].Addr, it.fetchSGE[0].Length = w.addr, 8
	wr := &it.fetch[0]
	wr.Flags, wr.RemoteAddr, wr.RKey = flags|e.joinSignal(e.PI), raddr, uint32(key)
	pi := e.PI + 1
	e.PI, e.lastReadPI, wr.ID = pi, pi, pi
	w.result = result
	e.join(c, pi, opAtomic)
	if _, err = e.send.PostSend(it.fetch[:]); err != nil {
		return false, e.failJoined(err)
	}
	return true, nil
}
