package rccore

import (
	"encoding/binary"
	"math"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
)

// opKind says what the end of an op does.
type opKind uint8

const (
	opBuffer opKind = iota // give the bounce buffer back
	opSend                 // the same, and complete
	opGet                  // copy from the bounce buffer or the slot first
	opAtomic               // store the returned word first
	opFlush                // complete
)

// op is what is to be done when the work request sn of an EP is complete. It owns a
// slot, registered memory that a short read or an atomic returns into.
type op struct {
	next   *op
	sn     uint64
	comp   *uct.Completion
	addr   uint64 // of slot
	slot   *[slotLen]byte
	kind   opKind
	buf    uint32  // bounce buffer, or noBuffer
	dst    []byte  // of opGet
	result *uint64 // of opAtomic, or nil
}

// slotLen is the length of a slot: one cache line.
const slotLen = 64

// epSlots is how many EPs have a slot of their own. Atomics of others are always ops.
const epSlots = 64

const noBuffer = math.MaxUint32

// NoOp is EP.NextOp without ops: above the IDs of sends, below those of receives.
const NoOp = ib.RecvID

// opPool is a free list of ops. It grows when an EP is made.
type opPool struct {
	free  *op
	left  int // in the free list
	total int
}

// grow adds n ops, up to limit in all, for which slots has room.
func (p *opPool) grow(n, limit int, slots *ib.Pool) {
	chunk := make([]op, max(min(n, limit-p.total), 0))
	for i := range chunk {
		o := &chunk[i]
		at, _ := slots.Get() // there are enough
		o.slot, o.buf, o.addr = (*[slotLen]byte)(slots.Bytes(at)), noBuffer, slots.SGE(at, 0, slotLen).Addr
		p.put(o)
	}
	p.total += len(chunk)
}

// get takes an op that has no buffer; nil if none is free.
func (p *opPool) get() *op {
	o := p.free
	if o != nil {
		p.free = o.next
		p.left--
	}
	return o
}

// put takes an op back that holds nothing.
func (p *opPool) put(o *op) {
	o.next = p.free
	p.free = o
	p.left++
}

// queue puts o, for the last posted work request, at the end of e's ops. If it is the
// first one, the completion that is on its way looks at it, even if it is not its own:
// it may be the last on its way.
func (e *EP) queue(o *op) {
	o.sn = e.PI
	if e.opHead == nil {
		e.opHead, e.NextOp = o, min(e.NextOp, e.Sig)
	} else {
		e.opTail.next = o
	}
	e.opTail = o
}

// waiter is one completion that needs no op: of a flush, or of zero-copy operations or
// atomics that were posted one after the other with the same completion, and with the same
// result. An EP has one, for the first that comes; others are ops.
type waiter struct {
	comp   *uct.Completion // nil: free
	result *uint64         // of opAtomic, or nil; nil if free
	slot   *[slotLen]byte  // where atomics of the waiter return into, one after the other
	addr   uint64          // of slot; 0: there is none
	ended  uint64          // the work request before the first one that it waits for
	sn     uint64          // of the last operation, or what the flush waits for
}

// joins reports whether the waiter can take in a zero-copy operation that is posted behind pi,
// with c. It does not without c, which is nothing to wait for.
func (e *EP) joins(c *uct.Completion, pi uint64) bool {
	w := &e.waiter
	return c != nil && (w.comp == nil || w.comp == c && w.sn == pi && e.waits == opSend)
}

// fetches is joins for an atomic. Of those that share a completion and a result the last one's
// old value stays, as they end in order.
func (e *EP) fetches(c *uct.Completion, result *uint64, pi uint64) bool {
	w := &e.waiter
	return c != nil && w.addr != 0 &&
		(w.comp == nil || w.comp == c && w.sn == pi && e.waits == opAtomic && w.result == result)
}

// join takes in the operation pi, for which joins or fetches said so: the last one, or the one
// that is posted next.
func (e *EP) join(c *uct.Completion, pi uint64, kind opKind) {
	w := &e.waiter
	w.sn = pi
	if w.comp == nil {
		w.comp, w.ended, e.waits = c, pi-1, kind
		e.NextOp = min(e.NextOp, e.Sig)
	}
}

// Retire ends what waits for work requests up to CI, which have succeeded, in the order in which
// it was posted. Completions run; they may post on e and close it.
func (e *EP) Retire() {
	w, sn := &e.waiter, e.waiter.sn
	if c := w.comp; e.opHead == nil && c != nil && sn <= e.CI && e.state == stateReady {
		w.comp, e.NextOp = nil, NoOp // it is alone, as it is mostly
		if e.waits == opAtomic {
			w.take()
			w.result = nil
		}
		if c.Count -= int(sn - w.ended); c.Count == 0 {
			c.Func(c)
		}
		return
	}
	e.retireInOrder(ucs.StatusOK)
}

// retireInOrder is Retire with more than one thing to end, for work requests that ended with st,
// or for an EP that is not ready.
//
//go:noinline
func (e *EP) retireInOrder(st ucs.Status) {
	if st == ucs.StatusOK {
		e.retireFetched()
	}
	w := &e.waiter
	for {
		if o := e.opHead; o != nil && o.sn <= e.CI && (w.comp == nil || o.precedes(w.ended+1)) {
			if e.opHead = o.next; o == e.opTail {
				e.opHead = nil
			}
			e.finishOp(o, st)
		} else if w.comp != nil && w.ended < e.CI {
			e.endWaiter(st)
		} else {
			break
		}
	}
	if e.NextOp = NoOp; e.opHead != nil || w.comp != nil {
		e.more()
	}
	if e.state >= stateFailed {
		e.releaseWhenIdle()
	}
}

// retireFetched ends the atomics that come first and have succeeded: retireInOrder without its
// other cases. It stops when a completion has run, which may have changed what waits.
func (e *EP) retireFetched() {
	last := e.CI
	if w := &e.waiter; w.comp != nil {
		last = min(last, w.ended)
	}
	for o := e.opHead; o != nil && o.sn <= last && o.kind == opAtomic; o = e.opHead {
		if e.opHead = o.next; o == e.opTail {
			e.opHead = nil
		}
		c := o.comp
		o.comp = nil
		if r := o.result; r != nil {
			*r = binary.NativeEndian.Uint64(o.slot[:])
			o.result = nil
		}
		e.it.ops.put(o)
		if c == nil {
			continue
		}
		if c.Count--; c.Count == 0 {
			c.Func(c)
			return
		}
	}
}

// endWaiter ends the flush that the waiter is; or its operations up to CI or to the next flush,
// of which it ends the first one alone with another status than OK.
func (e *EP) endWaiter(st ucs.Status) {
	w := &e.waiter
	c, last := w.comp, min(w.sn, e.CI)
	if o := e.opHead; o != nil {
		last = min(last, o.sn)
	}
	if st != ucs.StatusOK {
		last = w.ended + 1
	} else if e.waits == opAtomic {
		w.take()
	}
	n, kind := int(last-w.ended), e.waits
	if w.ended = last; last == w.sn {
		w.comp, w.result = nil, nil
	}
	if st != ucs.StatusOK {
		c.Complete(e.opStatus(kind, st))
	} else if c.Count -= n; c.Count == 0 {
		c.Func(c)
	}
}

// take gives the user what the last atomic has brought.
func (w *waiter) take() {
	if r := w.result; r != nil {
		*r = binary.NativeEndian.Uint64(w.slot[:])
	}
}

// precedes reports whether o ends before a waiter whose first work request is sn. A flush
// that is an op was asked for after it.
func (o *op) precedes(sn uint64) bool { return o.sn < sn || o.sn == sn && o.kind != opFlush }

// more says which completion is to be looked at next, and has one come if somebody waits
// for what is behind the last one on its way.
func (e *EP) more() {
	w := &e.waiter
	wanted := e.wanted
	if w.comp != nil {
		wanted = max(wanted, w.sn)
	}
	if e.Sig <= e.CI && wanted > e.CI && e.state == stateReady && e.postNop() == uct.ErrNoResource {
		e.it.signalLater() // no slot in the CQ
	}
	if e.opHead != nil {
		e.NextOp = min(e.opHead.sn, e.Sig)
	}
	if w.comp != nil {
		e.NextOp = min(e.NextOp, w.ended+1, e.Sig)
	}
}

// finishOp ends o and gives back what it holds before the completion runs.
func (e *EP) finishOp(o *op, st ucs.Status) {
	it, c := e.it, o.comp
	o.comp = nil
	if st == ucs.StatusOK {
		e.take(o)
	} else {
		st = e.opStatus(o.kind, st)
		o.dst, o.result = nil, nil
	}
	if o.buf != noBuffer {
		it.tx.Put(o.buf)
		o.buf = noBuffer
	}
	it.ops.put(o)
	switch {
	case c == nil:
	case st != ucs.StatusOK:
		c.Complete(st)
	default: // Complete, written out
		if c.Count--; c.Count == 0 {
			c.Func(c)
		}
	}
}

// take gives the user what a read or an atomic has brought.
func (e *EP) take(o *op) {
	switch {
	case o.kind == opAtomic:
		if r := o.result; r != nil {
			*r = binary.NativeEndian.Uint64(o.slot[:])
			o.result = nil
		}
	case o.kind != opGet:
	case o.buf == noBuffer:
		copy(o.dst, o.slot[:])
		o.dst = nil
	default:
		copy(o.dst, e.it.tx.Bytes(o.buf))
		o.dst = nil
	}
}

// opStatus is the status of an op that ended with st on an EP that has failed or was
// closed. An op that the device has flushed gets the cause in two cases: the cause was the
// connection, or a fault that no operation of the EP has made; or the op is a flush, whose
// status stands for everything before it.
func (e *EP) opStatus(kind opKind, st ucs.Status) ucs.Status {
	if st != ucs.StatusCanceled || e.cause == ucs.StatusOK {
		return st
	}
	switch e.cause {
	case ucs.StatusConnReset, ucs.StatusPeerClosed, ucs.StatusTimedOut, ucs.StatusRNR, ucs.StatusIOError:
		return e.cause
	}
	if kind == opFlush {
		return e.cause
	}
	return st
}
