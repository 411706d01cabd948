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
	opGet                  // unpack the bounce buffer first
	opAtomic               // store the returned word first
	opFlush                // complete
)

// op is what is to be done when the work request sn of an EP is complete.
type op struct {
	next   *op
	sn     uint64
	kind   opKind
	buf    uint32 // bounce buffer, or noBuffer
	word   uint32 // of opAtomic, or noBuffer
	n      int    // bytes of opGet
	comp   *uct.Completion
	unpack uct.Unpacker
	result *uint64
}

const noBuffer = math.MaxUint32

// NoOp is EP.NextOp without ops: above the IDs of sends, below those of receives.
const NoOp = ib.RecvID

// opPool is a free list of ops. It grows when an EP is made.
type opPool struct {
	free  *op
	left  int // in the free list
	total int
}

// grow adds n ops, up to limit in all.
func (p *opPool) grow(n, limit int) {
	chunk := make([]op, max(min(n, limit-p.total), 0))
	for i := range chunk {
		p.put(&chunk[i])
	}
	p.total += len(chunk)
}

// get takes an op that has no buffer and no word; nil if none is free.
func (p *opPool) get() *op {
	o := p.free
	if o == nil {
		return nil
	}
	p.free = o.next
	p.left--
	o.next = nil
	return o
}

func (p *opPool) put(o *op) {
	*o = op{next: p.free, buf: noBuffer, word: noBuffer}
	p.free = o
	p.left++
}

// queue puts o, for the last posted work request, at the end of e's ops.
func (e *EP) queue(o *op) {
	o.sn = e.PI
	if e.opTail == nil {
		e.opHead, e.NextOp = o, o.sn
	} else {
		e.opTail.next = o
	}
	e.opTail = o
}

// Retire ends the ops of work requests up to ci with st. Completions run; they
// may post on e and close it.
func (e *EP) Retire(st ucs.Status) {
	for o := e.opHead; o != nil && o.sn <= e.CI; o = e.opHead {
		e.opHead = o.next
		if o.next == nil {
			e.opTail = nil
		}
		e.finishOp(o, st)
	}
	e.NextOp = NoOp
	if o := e.opHead; o != nil {
		e.NextOp = o.sn
	}
	if e.state >= stateFailed {
		e.settle()
	}
}

// finishOp ends o and gives back what it holds before the completion runs.
func (e *EP) finishOp(o *op, st ucs.Status) {
	it := e.it
	if st == ucs.StatusOK {
		switch o.kind {
		case opGet:
			o.unpack.Unpack(it.tx.Bytes(o.buf)[:o.n])
		case opAtomic:
			if o.result != nil {
				*o.result = binary.NativeEndian.Uint64(it.words.Bytes(o.word))
			}
		}
	} else {
		st = e.opStatus(o.kind, st)
	}
	if o.buf != noBuffer {
		it.tx.Put(o.buf)
	}
	if o.word != noBuffer {
		it.words.Put(o.word)
	}
	c := o.comp
	it.ops.put(o)
	if c != nil {
		c.Complete(st)
	}
}

// opStatus is the status of an op that ended with st on an EP that has failed or
// was closed: flushed ones get the cause if it was the connection, or if they are
// a flush, which speaks for everything before it.
func (e *EP) opStatus(kind opKind, st ucs.Status) ucs.Status {
	if st != ucs.StatusCanceled || e.cause == ucs.StatusOK {
		return st
	}
	switch e.cause {
	case ucs.StatusTimedOut, ucs.StatusConnReset, ucs.StatusRNR:
		return e.cause
	}
	if kind == opFlush {
		return e.cause
	}
	return st
}
