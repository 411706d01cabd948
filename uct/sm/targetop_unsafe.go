package sm

import (
	"unsafe"

	"github.com/gucx/gucx/internal/race"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/memop"
)

// opKind is the type of an operation that the peer executes.
type opKind uint8

const (
	opPut    opKind = 1
	opGet    opKind = 2
	opAtomic opKind = 3
	opFlush  opKind = 4 // not sent: completes when all operations before it in the queue have completed
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

// request is a piece of a targetOp in a slot. The segment contains the bytes of a put; the peer writes the bytes of a get
// to it.
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
	request      // raddr, key, op, size, value and compare of the whole operation
	total   int  // bytes
	issued  int  // bytes
	done    int  // bytes
	out     int  // pieces in flight
	sent    bool // all pieces were sent
	status  ucs.Status
	pieces  int
	iov     [maxIOV]uct.IOV
	result  *uint64
	comp    *uct.Completion
}

// maxOps limits the targetOps of one EP.
const maxOps = 16

// opQueue has the targetOps of an EP, in order, and their pieces in flight.
type opQueue struct {
	ring       []targetOp // maxOps elements
	head, tail uint
	next       uint // the first targetOp that is not completely issued
	pieces     []piece
	first, end uint
}

// piece is a segment in flight with n bytes.
type piece struct {
	seg  uint8
	slot uint64 // number of the slot with the request
	n    int
}

func (q *opQueue) room() bool  { return q.tail-q.head < maxOps }
func (q *opQueue) empty() bool { return q.tail == q.head }

func (q *opQueue) at(i uint) *targetOp { return &q.ring[i%maxOps] }

// add queues a targetOp. The first call allocates the queue, because most EPs need none.
func (e *endpoint) add(kind opKind, raddr, key uint64, n int, c *uct.Completion) *targetOp {
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

// hasReply reports whether the reply to the first piece has arrived.
func (e *endpoint) hasReply() bool {
	q := &e.ops
	if e.tx.slots == nil || q.first == q.end {
		return false
	}
	return e.tx.pool.isReturned(q.pieces[q.first%uint(len(q.pieces))].seg)
}

// canPostOp reports whether an operation of one piece can be sent at once.
func (e *endpoint) canPostOp() bool {
	return e.ops.room() && e.ops.next == e.ops.tail && e.tx.room()
}

// targetGet is GetBcopy by the peer.
func (e *endpoint) targetGet(buf []byte, raddr, key uint64, c *uct.Completion) (bool, error) {
	if !e.ops.room() {
		return false, uct.ErrNoResource
	}
	a := e.add(opGet, raddr, key, len(buf), c)
	a.iov[0], a.pieces = uct.IOV{Buf: buf}, 1
	e.issue()
	return true, nil
}

// targetAtomic is an atomic by the peer.
func (e *endpoint) targetAtomic(op uct.AtomicOp, size int, compare, value uint64, result *uint64, raddr, key uint64, c *uct.Completion) (bool, error) {
	if e.mapMore(key, raddr, uint64(size), uct.AccessRemoteAtomic) {
		if op == uct.AtomicCSwap {
			return e.AtomicCSwap(size, compare, value, result, raddr, uct.RKey(key), c)
		}
		return e.atomic(memop.PostOps, op, size, value, result, raddr, key, c)
	}
	if !e.isUnmapped(key, raddr, uint64(size), uct.AccessRemoteAtomic) {
		return false, e.accessError()
	}
	if !e.ops.room() {
		return false, uct.ErrNoResource
	}
	a := e.add(opAtomic, raddr, key, 0, c)
	a.op, a.size, a.compare, a.value, a.result = op, uint8(size), compare, value, result
	e.issue()
	return true, nil
}

// issue sends pieces of targetOps, in order, as long as slots and segments are free.
func (e *endpoint) issue() {
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

// issuePiece sends the next piece of a; false if no slot or segment is free.
func (e *endpoint) issuePiece(a *targetOp) bool {
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
	e.tx.pool.takeForReply()
	q.pieces[q.end%uint(len(q.pieces))] = piece{seg: seg, slot: e.tx.tail, n: n}
	q.end++
	e.tx.publish(s, 0, kindOp, requestLen)
	e.notifyIfAsleep()
	a.issued += n
	a.out++
	a.sent = a.issued == a.total
	return true
}

// collectOps handles replies and completes targetOps; it returns the number of completed ones. Every
// completion may close the EP, which cancels the targetOps and unmaps the link;
// hasReply then returns false. The first operation in the queue is never a flush here.
func (e *endpoint) collectOps() (n int) {
	q := &e.ops
	for e.hasReply() {
		l := e.outLink
		p := q.pieces[q.first%uint(len(q.pieces))]
		race.AcquireFromPeers()
		q.first++
		e.handleReply(q.at(q.head), p)
		l.tx.pool.put(p.seg)
		n += e.finishFirst()
	}
	e.issue()
	return n
}

// handleReply handles the reply to a piece of a.
func (e *endpoint) handleReply(a *targetOp, p piece) {
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

// finishFirst completes the first targetOp, if all replies have arrived, and the flushes
// after it; it returns the number of completed ones.
func (e *endpoint) finishFirst() (n int) {
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

// popOp removes the first targetOp and completes it.
func (e *endpoint) popOp() {
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

// abandonPieces makes the link free the segments in flight when the peer returns them.
func (e *endpoint) abandonPieces(l *outLink) {
	q := &e.ops
	for ; q.first != q.end; q.first++ {
		p := q.pieces[q.first%uint(len(q.pieces))]
		l.tx.pool.abandon(p.seg, p.slot)
	}
}

// cancelOps completes all targetOps with st.
func (e *endpoint) cancelOps(st uct.Status) {
	for !e.ops.empty() {
		a := e.ops.at(e.ops.head)
		if a.status == ucs.StatusOK {
			a.status = st
		}
		e.popOp()
	}
}
