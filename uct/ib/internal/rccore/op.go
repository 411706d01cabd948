package rccore

import (
	"encoding/binary"
	"math"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/buffer"
)

// opKind selects what the completion of an op does.
type opKind uint8

const (
	opBuffer opKind = iota // free the bounce buffer
	opSend                 // free the bounce buffer and call the completion
	opGet                  // as opSend, after a copy from the bounce buffer or the slot
	opAtomic               // as opSend, after a store of the old value
	opFlush                // call the completion
)

// op is an operation that needs an action when work request sn of its EP completes. It has a slot:
// registered memory for the result of a short read or an atomic.
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

// epSlots is the number of EPs with a slot of their own. Atomics of other EPs are always ops.
const epSlots = 64

const noBuffer = math.MaxUint32

// NoOp is the value of EP.NextOp without ops: more than the IDs of sends and at most those of
// receives.
const NoOp = buffer.RecvID

// opPool is a free list of ops. It grows when an EP is created.
type opPool struct {
	free      *op
	freeCount int // length of the free list
	total     int
}

// grow adds n ops, up to limit in total. slots has enough free slots for limit ops.
func (p *opPool) grow(n, limit int, slots *buffer.Pool) {
	chunk := make([]op, max(min(n, limit-p.total), 0))
	for i := range chunk {
		o := &chunk[i]
		at, _ := slots.Get() // limit ensures a free slot
		o.slot, o.buf, o.addr = (*[slotLen]byte)(slots.Bytes(at)), noBuffer, slots.SGE(at, 0, slotLen).Addr
		p.put(o)
	}
	p.total += len(chunk)
}

// get returns an op without buffer, or nil if none is free.
func (p *opPool) get() *op {
	o := p.free
	if o != nil {
		p.free = o.next
		p.freeCount--
	}
	return o
}

// put frees an op that owns nothing but its slot.
func (p *opPool) put(o *op) {
	o.next = p.free
	p.free = o
	p.freeCount++
}

// queue appends o, for the last posted work request, to the ops of e. If it is the first op, the
// completion in flight must call Retire even if it is an earlier one, because no later one may be
// signaled.
func (e *EP) queue(o *op) {
	o.sn = e.PI
	if e.opHead == nil {
		e.opHead, e.NextOp = o, min(e.NextOp, e.Sig)
	} else {
		e.opTail.next = o
	}
	e.opTail = o
}

// waiter holds one completion without an op: of a flush, or of zero-copy operations or atomics
// posted one after the other with the same completion and the same result. An EP has one waiter;
// further completions need ops.
type waiter struct {
	comp        *uct.Completion // nil: free
	result      *uint64         // of opAtomic, or nil; nil if free
	slot        *[slotLen]byte  // receives the old values of the atomics of the waiter, one after the other
	addr        uint64          // of slot; 0: no slot
	completedSN uint64          // last work request before the outstanding operations of the waiter
	sn          uint64          // work request of the last operation, or of the flush
}

// canJoin reports whether the waiter can include a zero-copy operation with completion c, posted
// after work request pi. It returns false if c is nil.
func (e *EP) canJoin(c *uct.Completion, pi uint64) bool {
	w := &e.waiter
	return c != nil && (w.comp == nil || w.comp == c && w.sn == pi && e.waiterKind == opSend)
}

// canJoinFetch is canJoin for an atomic. Atomics with the same completion and result complete in order, so
// the result is the old value of the last one.
func (e *EP) canJoinFetch(c *uct.Completion, result *uint64, pi uint64) bool {
	w := &e.waiter
	return c != nil && w.addr != 0 &&
		(w.comp == nil || w.comp == c && w.sn == pi && e.waiterKind == opAtomic && w.result == result)
}

// join includes the operation of work request pi in the waiter: the last posted one or the next.
// canJoin or canJoinFetch must have returned true.
func (e *EP) join(c *uct.Completion, pi uint64, kind opKind) {
	w := &e.waiter
	w.sn = pi
	if w.comp == nil {
		w.comp, w.completedSN, e.waiterKind = c, pi-1, kind
		e.NextOp = min(e.NextOp, e.Sig)
	}
}

// Retire completes the operations of successful work requests up to CI, in the order in which they
// were posted. It calls completions, which may post on e and close it.
func (e *EP) Retire() {
	w, sn := &e.waiter, e.waiter.sn
	if c := w.comp; e.opHead == nil && c != nil && sn <= e.CI && e.state == stateReady {
		w.comp, e.NextOp = nil, NoOp // the common case: no ops
		if e.waiterKind == opAtomic {
			w.copyResult()
			w.result = nil
		}
		if c.Count -= int(sn - w.completedSN); c.Count == 0 {
			c.Func(c)
		}
		return
	}
	e.retireInOrder(ucs.StatusOK)
}

// retireInOrder is Retire for more than one operation, for work requests that completed with
// another status than OK, or for an EP that is not in state ready.
//
//go:noinline
func (e *EP) retireInOrder(st ucs.Status) {
	if st == ucs.StatusOK {
		e.retireFetched()
	}
	w := &e.waiter
	for {
		if o := e.opHead; o != nil && o.sn <= e.CI && (w.comp == nil || o.precedes(w.completedSN+1)) {
			if e.opHead = o.next; o == e.opTail {
				e.opHead = nil
			}
			e.finishOp(o, st)
		} else if w.comp != nil && w.completedSN < e.CI {
			e.completeWaiter(st)
		} else {
			break
		}
	}
	if e.NextOp = NoOp; e.opHead != nil || w.comp != nil {
		e.updateNextOp()
	}
	if e.state >= stateFailed {
		e.releaseWhenIdle()
	}
}

// retireFetched completes the successful atomics at the head of the ops: retireInOrder without its
// other cases. It stops after it has called a completion, which may have changed the ops.
func (e *EP) retireFetched() {
	last := e.CI
	if w := &e.waiter; w.comp != nil {
		last = min(last, w.completedSN)
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

// completeWaiter completes the flush of the waiter, or its operations up to CI or to the next op; with
// another status than OK it completes only the first operation.
func (e *EP) completeWaiter(st ucs.Status) {
	w := &e.waiter
	c, last := w.comp, min(w.sn, e.CI)
	if o := e.opHead; o != nil {
		last = min(last, o.sn)
	}
	if st != ucs.StatusOK {
		last = w.completedSN + 1
	} else if e.waiterKind == opAtomic {
		w.copyResult()
	}
	n, kind := int(last-w.completedSN), e.waiterKind
	if w.completedSN = last; last == w.sn {
		w.comp, w.result = nil, nil
	}
	if st != ucs.StatusOK {
		c.Complete(e.opStatus(kind, st))
	} else if c.Count -= n; c.Count == 0 {
		c.Func(c)
	}
}

// copyResult copies the old value of the last atomic to result.
func (w *waiter) copyResult() {
	if r := w.result; r != nil {
		*r = binary.NativeEndian.Uint64(w.slot[:])
	}
}

// precedes reports whether o completes before a waiter whose first work request is sn. If o is a
// flush of the same work request, it was called after the operation of the waiter.
func (o *op) precedes(sn uint64) bool { return o.sn < sn || o.sn == sn && o.kind != opFlush }

// updateNextOp sets NextOp. If an outstanding operation has a work request after the last signaled one, it posts
// a signaled one.
func (e *EP) updateNextOp() {
	w := &e.waiter
	wanted := e.lastCompPI
	if w.comp != nil {
		wanted = max(wanted, w.sn)
	}
	if e.Sig <= e.CI && wanted > e.CI && e.state == stateReady && e.postNop() == uct.ErrNoResource {
		e.it.deferSignals() // no slot in the CQ
	}
	if e.opHead != nil {
		e.NextOp = min(e.opHead.sn, e.Sig)
	}
	if w.comp != nil {
		e.NextOp = min(e.NextOp, w.completedSN+1, e.Sig)
	}
}

// finishOp completes o. It frees the resources of o before it calls the completion.
func (e *EP) finishOp(o *op, st ucs.Status) {
	it, c := e.it, o.comp
	o.comp = nil
	if st == ucs.StatusOK {
		e.copyResult(o)
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
	default: // inlined Complete
		if c.Count--; c.Count == 0 {
			c.Func(c)
		}
	}
}

// copyResult copies the data of a read, or the old value of an atomic, to the memory of the user.
func (e *EP) copyResult(o *op) {
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

// opStatus returns the status of an op that ended with st on a failed or closed EP. A flushed op
// gets the cause of the failure in two cases: the cause is the connection, or a fault that no
// operation of the EP caused; or the op is a flush, whose status covers all operations before it.
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
