package sm

import (
	"unsafe"

	"github.com/gucx/gucx/internal/race"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// askKind is what the peer shall do.
type askKind uint8

const (
	askPut askKind = iota + 1
	askGet
	askAtomic
	askFlush // nothing: marks a place in the queue, and is never sent
)

func (k askKind) need() uct.Access {
	switch k {
	case askPut:
		return uct.AccessRemoteWrite
	case askGet:
		return uct.AccessRemoteRead
	}
	return uct.AccessRemoteAtomic
}

// request is an ask in a slot. Bytes to put are in the segment; bytes that were got
// come back in it.
type request struct {
	kind    askKind
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

// ask is an operation that the peer executes, in pieces of a segment each.
type ask struct {
	request      // raddr, key, op, size, value, compare of the whole
	total   int  // bytes
	issued  int  // bytes
	done    int  // bytes
	out     int  // pieces under way
	sent    bool // all pieces
	status  ucs.Status
	pieces  int
	iov     [maxIOV]uct.IOV
	unpack  uct.Unpacker
	result  *uint64
	comp    *uct.Completion
}

// maxAsks is how many asks wait on one EP.
const maxAsks = 16

// askQueue is the asks of an EP, in order, and their pieces under way.
type askQueue struct {
	ops        []ask // ring of maxAsks
	head, tail uint
	next       uint // first that is not issued whole
	pieces     []piece
	first, end uint
}

// piece is a segment that is under way with n bytes.
type piece struct {
	seg uint8
	n   int
}

func (q *askQueue) open(segs int) {
	q.ops = make([]ask, maxAsks)
	q.pieces = make([]piece, segs)
}

func (q *askQueue) room() bool  { return q.tail-q.head < maxAsks }
func (q *askQueue) empty() bool { return q.tail == q.head }

func (q *askQueue) at(i uint) *ask { return &q.ops[i%maxAsks] }

func (q *askQueue) add(kind askKind, raddr, key uint64, n int, c *uct.Completion) *ask {
	a := q.at(q.tail)
	*a = ask{request: request{kind: kind, raddr: raddr, key: key}, total: n, comp: c}
	q.tail++
	return a
}

// answerWaits reports whether something has come back.
func (e *EP) answerWaits() bool {
	q := &e.asks
	if e.tx.slots == nil || q.first == q.end {
		return false
	}
	return e.tx.loans.isBack(q.pieces[q.first%uint(len(q.pieces))].seg)
}

// canAskNow reports whether a short operation can go out at once.
func (e *EP) canAskNow() bool {
	return e.asks.room() && e.asks.next == e.asks.tail && e.tx.room()
}

// askGet is GetBcopy by the peer.
func (e *EP) askGet(u uct.Unpacker, n int, raddr, key uint64, c *uct.Completion) (bool, error) {
	if !e.asks.room() {
		return false, uct.ErrNoResource
	}
	e.asks.add(askGet, raddr, key, n, c).unpack = u
	e.issue()
	return true, nil
}

// askAtomic is an atomic by the peer.
func (e *EP) askAtomic(op uct.AtomicOp, size int, compare, value uint64, result *uint64, raddr, key uint64, c *uct.Completion) (bool, error) {
	if !e.private(key, raddr, uint64(size), uct.AccessRemoteAtomic) {
		return false, ucs.ErrRemoteAccess
	}
	if !e.asks.room() {
		return false, uct.ErrNoResource
	}
	a := e.asks.add(askAtomic, raddr, key, 0, c)
	a.op, a.size, a.compare, a.value, a.result = op, uint8(size), compare, value, result
	e.issue()
	return true, nil
}

// issue sends pieces of asks, in order, as long as there is room.
func (e *EP) issue() {
	q := &e.asks
	e.iface.asking = true
	for q.next != q.tail {
		a := q.at(q.next)
		for a.kind != askFlush && !a.sent {
			if !e.issuePiece(a) {
				return
			}
		}
		q.next++
	}
}

// issuePiece sends the next piece of a; false if there is no room.
func (e *EP) issuePiece(a *ask) bool {
	q := &e.asks
	s := e.tx.next()
	if s == nil || q.end-q.first == uint(len(q.pieces)) {
		return false
	}
	buf := e.tx.seg()
	if buf == nil {
		return false
	}
	n := min(a.total-a.issued, len(buf))
	if a.kind == askPut {
		gatherFrom(buf[:n], a.iov[:a.pieces], a.issued)
	}
	r := a.request
	r.seg, r.n, r.raddr = uint32(e.tx.top), uint32(n), a.raddr+uint64(a.issued)
	*(*request)(unsafe.Pointer(&s.data)) = r
	e.tx.loans.lend(e.tx.top)
	q.pieces[q.end%uint(len(q.pieces))] = piece{seg: e.tx.top, n: n}
	q.end++
	e.tx.publish(s, 0, kindAsk, requestLen)
	e.told()
	a.issued += n
	a.out++
	a.sent = a.issued == a.total
	return true
}

// collectAsks takes answers and completes asks; it returns how many ended.
func (e *EP) collectAsks() (n int) {
	q := &e.asks
	for e.tx.slots != nil && q.first != q.end {
		p := q.pieces[q.first%uint(len(q.pieces))]
		if !e.tx.loans.isBack(p.seg) {
			break
		}
		race.Acquire(unsafe.Pointer(&order))
		q.first++
		e.skipFlushes(&n)
		e.answered(q.at(q.head), p)
		e.tx.loans.put(p.seg)
		e.finishFirst(&n)
	}
	if e.tx.slots != nil {
		e.skipFlushes(&n)
		e.issue()
	}
	return n
}

// answered takes what came back for a piece of a.
func (e *EP) answered(a *ask, p piece) {
	ans := e.tx.hdr.answer[p.seg]
	a.out--
	if ans.status != 0 {
		a.status = ucs.StatusRemoteAccess
		return
	}
	data := e.tx.segAt(p.seg, p.n)
	switch {
	case a.unpack != nil:
		a.unpack.Unpack(data)
	case a.kind == askGet:
		scatterAt(a.iov[:a.pieces], a.done, data)
	case a.result != nil:
		*a.result = ans.old
	}
	a.done += p.n
}

// finishFirst completes the first ask if all of it has come back.
func (e *EP) finishFirst(n *int) {
	a := e.asks.at(e.asks.head)
	if a.sent && a.out == 0 {
		*n++
		e.popAsk()
	}
}

// skipFlushes completes the flushes that are first in the queue.
func (e *EP) skipFlushes(n *int) {
	for !e.asks.empty() && e.asks.at(e.asks.head).kind == askFlush {
		*n++
		e.popAsk()
	}
}

// popAsk takes the first ask out and completes it.
func (e *EP) popAsk() {
	q := &e.asks
	a := q.at(q.head)
	comp, st := a.comp, a.status
	*a = ask{}
	if q.next == q.head {
		q.next++
	}
	q.head++
	if q.empty() {
		e.holdFenced(false)
	}
	if comp != nil {
		comp.Complete(st)
	}
	if st != ucs.StatusOK && e.state == epUp {
		e.fail(st.Err())
	}
}

// cancelAsks ends all asks with st.
func (e *EP) cancelAsks(st uct.Status) {
	for !e.asks.empty() {
		a := e.asks.at(e.asks.head)
		if a.status == ucs.StatusOK {
			a.status = st
		}
		e.popAsk()
	}
	e.asks.first = e.asks.end
}
