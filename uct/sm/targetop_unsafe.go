package sm

import (
	"unsafe"

	"github.com/gucx/gucx/internal/race"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/memop"
)

// opKind is what the peer shall do.
type opKind uint8

const (
	opPut    opKind = 1
	opGet    opKind = 2
	opAtomic opKind = 3
	opFlush  opKind = 4 // nothing: marks a place in the queue, and is never sent
)

func (k opKind) need() uct.Access {
	switch k {
	case opPut:
		return uct.AccessRemoteWrite
	case opGet:
		return uct.AccessRemoteRead
	}
	return uct.AccessRemoteAtomic
}

// request is a targetOp in a slot. Bytes to put are in the segment; bytes that were got
// come back in it.
type request struct {
	kind    opKind
	op      uct.AtomicOp
	size    uint8
	_       uint8
	seg     uint32
	n       uint32
	_       uint32
	raddr   uint64
	key     uint64
	value   uint64
	compare uint64
}

const requestLen = uint64(unsafe.Sizeof(request{}))

var _ = [inlineLen]struct{}{}[requestLen]

// targetOp is an operation that the peer executes, in pieces of a segment each.
type targetOp struct {
	request      // raddr, key, op, size, value, compare of the whole
	total   int  // bytes
	issued  int  // bytes
	done    int  // bytes
	out     int  // pieces under way
	sent    bool // all pieces
	status  ucs.Status
	pieces  int
	iov     [maxIOV]uct.IOV
	result  *uint64
	comp    *uct.Completion
}

// maxOps is how many targetOps wait on one EP.
const maxOps = 16

// opQueue is the targetOps of an EP, in order, and their pieces under way.
type opQueue struct {
	ring       []targetOp // of maxOps
	head, tail uint
	next       uint // first that is not issued whole
	pieces     []piece
	first, end uint
}

// piece is a segment that is under way with n bytes.
type piece struct {
	seg  uint8
	slot uint64 // number of the slot that asks for it
	n    int
}

func (q *opQueue) room() bool  { return q.tail-q.head < maxOps }
func (q *opQueue) empty() bool { return q.tail == q.head }

func (q *opQueue) at(i uint) *targetOp { return &q.ring[i%maxOps] }

// add queues a targetOp. The queue is made at the first one, as most EPs have none.
func (e *EP) add(kind opKind, raddr, key uint64, n int, c *uct.Completion) *targetOp {
	q := &e.ops
	if q.ring == nil {
		q.ring = make([]targetOp, maxOps)
		q.pieces = make([]piece, e.iface.cfg.Segs)
	}
	a := q.at(q.tail)
	*a = targetOp{request: request{kind: kind, raddr: raddr, key: key}, total: n, comp: c}
	q.tail++
	return a
}

// answerWaits reports whether something has come back.
func (e *EP) answerWaits() bool {
	q := &e.ops
	if e.tx.slots == nil || q.first == q.end {
		return false
	}
	return e.tx.pool.isBack(q.pieces[q.first%uint(len(q.pieces))].seg)
}

// canPostOp reports whether a short operation can go out at once.
func (e *EP) canPostOp() bool {
	return e.ops.room() && e.ops.next == e.ops.tail && e.tx.room()
}

// targetGet is GetBcopy by the peer.
func (e *EP) targetGet(buf []byte, raddr, key uint64, c *uct.Completion) (bool, error) {
	if !e.ops.room() {
		return false, uct.ErrNoResource
	}
	a := e.add(opGet, raddr, key, len(buf), c)
	a.iov[0], a.pieces = uct.IOV{Buf: buf}, 1
	e.issue()
	return true, nil
}

// targetAtomic is an atomic by the peer.
func (e *EP) targetAtomic(op uct.AtomicOp, size int, compare, value uint64, result *uint64, raddr, key uint64, c *uct.Completion) (bool, error) {
	if e.extended(key, raddr, uint64(size), uct.AccessRemoteAtomic) {
		if op == uct.AtomicCSwap {
			return e.AtomicCSwap(size, compare, value, result, raddr, uct.RKey(key), c)
		}
		return e.atomic(memop.PostOps, op, size, value, result, raddr, key, c)
	}
	if !e.private(key, raddr, uint64(size), uct.AccessRemoteAtomic) {
		return false, e.denied()
	}
	if !e.ops.room() {
		return false, uct.ErrNoResource
	}
	a := e.add(opAtomic, raddr, key, 0, c)
	a.op, a.size, a.compare, a.value, a.result = op, uint8(size), compare, value, result
	e.issue()
	return true, nil
}

// issue sends pieces of targetOps, in order, as long as there is room.
func (e *EP) issue() {
	q := &e.ops
	if q.empty() {
		return
	}
	e.iface.opsWait = true
	e.iface.waits()
	for q.next != q.tail && e.tx.slots != nil {
		a := q.at(q.next)
		for a.kind != opFlush && !a.sent {
			if !e.issuePiece(a) {
				return
			}
		}
		q.next++
	}
}

// issuePiece sends the next piece of a; false if there is no room.
func (e *EP) issuePiece(a *targetOp) bool {
	q := &e.ops
	s := e.tx.next()
	if s == nil || q.end-q.first == uint(len(q.pieces)) {
		return false
	}
	buf := e.tx.seg()
	if buf == nil {
		return false
	}
	n := min(a.total-a.issued, len(buf))
	if a.kind == opPut {
		gatherFrom(buf[:n], a.iov[:a.pieces], a.issued)
	}
	r := a.request
	seg := e.tx.pool.next()
	r.seg, r.n, r.raddr = uint32(seg), uint32(n), a.raddr+uint64(a.issued)
	*(*request)(unsafe.Pointer(&s.data)) = r
	e.tx.pool.takeForAnswer()
	q.pieces[q.end%uint(len(q.pieces))] = piece{seg: seg, slot: e.tx.tail, n: n}
	q.end++
	e.tx.publish(s, 0, kindOp, requestLen)
	e.notifyIfAsleep()
	a.issued += n
	a.out++
	a.sent = a.issued == a.total
	return true
}

// collectOps takes answers and completes targetOps; it returns how many ended. Every
// completion may close the EP, which ends the targetOps and unmaps the link:
// answerWaits looks at that each time. The first in the queue is never a flush here.
func (e *EP) collectOps() (n int) {
	q := &e.ops
	for e.answerWaits() {
		l := e.outLink
		p := q.pieces[q.first%uint(len(q.pieces))]
		race.Acquire(unsafe.Pointer(&order))
		q.first++
		e.answered(q.at(q.head), p)
		l.tx.pool.put(p.seg)
		n += e.finishFirst()
	}
	e.issue()
	return n
}

// answered takes what came back for a piece of a.
func (e *EP) answered(a *targetOp, p piece) {
	ans := e.tx.hdr.answer[p.seg]
	a.out--
	if ans.status != 0 {
		a.status = ucs.StatusRemoteAccess
		return
	}
	data := e.tx.segAt(p.seg, p.n)
	switch {
	case a.kind == opGet:
		scatterAt(a.iov[:a.pieces], a.done, data)
	case a.result != nil:
		*a.result = ans.old
	}
	a.done += p.n
}

// finishFirst completes the first targetOp, if all of it has come back, and the flushes
// behind it; it returns how many ended.
func (e *EP) finishFirst() (n int) {
	for !e.ops.empty() {
		a := e.ops.at(e.ops.head)
		if a.kind != opFlush && (!a.sent || a.out != 0) {
			break
		}
		n++
		e.popOp()
	}
	return n
}

// popOp takes the first targetOp out and completes it.
func (e *EP) popOp() {
	q := &e.ops
	a := q.at(q.head)
	comp, st := a.comp, a.status
	*a = targetOp{}
	if q.next == q.head {
		q.next++
	}
	q.head++
	if q.empty() {
		e.fenced = false
	}
	if comp != nil {
		comp.Complete(st)
	}
	if st != ucs.StatusOK && e.state == epUp {
		e.fail(st.Err())
	}
}

// abandonPieces leaves the segments that are under way to the link, which has them again
// when they come back.
func (e *EP) abandonPieces(l *outLink) {
	q := &e.ops
	for ; q.first != q.end; q.first++ {
		p := q.pieces[q.first%uint(len(q.pieces))]
		l.tx.pool.abandon(p.seg, p.slot)
	}
}

// cancelOps ends all targetOps with st.
func (e *EP) cancelOps(st uct.Status) {
	for !e.ops.empty() {
		a := e.ops.at(e.ops.head)
		if a.status == ucs.StatusOK {
			a.status = st
		}
		e.popOp()
	}
}
