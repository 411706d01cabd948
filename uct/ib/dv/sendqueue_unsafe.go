package dv

import (
	"unsafe"

	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// dsMask is the length field of a control word, in units.
const dsMask = mlx5.MaxDS

// sendQueue is the producer of the send ring of a QP. It does not look whether
// there is room: the core posts no more work requests than the QP was made for.
//
// ring and ids are off the Go heap and on it; both have mask+1 elements, a power of
// two, and every index is masked, so no pointer leads out of them. The ring stays
// mapped until the QP is closed, which the core does after the last post; idMem
// keeps ids alive.
type sendQueue struct {
	ring unsafe.Pointer // basic blocks
	ids  unsafe.Pointer // *uint64: number of the work request that begins at a BB
	mask uint32         // basic blocks - 1
	pi   uint32         // basic blocks written
	want uint64         // control word of index 0, opcode 0 and length 0
	reg  *register
	dbr  mlx5.DBRec

	// What register.gather notes: WQEs, the first BB and the control word of the last.
	held     bool // in register.held
	gathered int
	last     uint32
	lastWord uint64

	qpn       uint32
	guard     *mlx5.Guard // of the thread domain
	datagram  bool
	maxInline int
	maxSGE    int
	idMem     []uint64
}

// open takes over the send queue of a QP.
func (q *sendQueue) open(qp *verbs.QP, raw mlx5.RawQP, reg *register) {
	limits := qp.Cap()
	q.ring, q.mask = raw.SQ.Buf, raw.SQ.Count-1
	q.idMem = make([]uint64, raw.SQ.Count)
	q.ids = unsafe.Pointer(unsafe.SliceData(q.idMem))
	q.want = mlx5.CtrlWord(0, 0, raw.QPN, 0)
	q.reg, q.dbr, q.qpn, q.guard = reg, raw.DBRec, raw.QPN, raw.Guard
	q.datagram = qp.Type() == verbs.QPTypeUD
	q.maxInline, q.maxSGE = limits.MaxInline, limits.MaxSendSGE
	reg.join()
}

// bb is basic block i, counted from the start of time.
func (q *sendQueue) bb(i uint32) *mlx5.BB {
	return (*mlx5.BB)(unsafe.Add(q.ring, uintptr(i&q.mask)*mlx5.BBLen))
}

// seg is unit i, counted from the start of time.
func (q *sendQueue) seg(i uint32) *mlx5.Seg {
	const units = mlx5.SegsPerBB
	return (*mlx5.Seg)(unsafe.Add(q.ring, uintptr(i&(q.mask*units+units-1))*mlx5.SegLen))
}

// id is where the number of the work request that begins at BB i is.
func (q *sendQueue) id(i uint32) *uint64 {
	return (*uint64)(unsafe.Add(q.ids, uintptr(i&q.mask)*8))
}

// ringBB ends the post of a work request whose WQE is b, the basic block at pi.
func (q *sendQueue) ringBB(word uint64, b *mlx5.BB, number uint64) {
	i := q.pi
	*q.id(i) = number
	i++
	q.pi = i
	switch r := q.reg; {
	case r.plain:
		q.dbr.StoreSend(uint16(i))
		r.copyBB(word, b)
	case r.holding:
		r.gather(q, word, i-1, 1)
	default:
		q.dbr.StoreSend(uint16(i))
		r.ringBB(word, b)
	}
}

// bytes copies data to byte off of the ring, counted from the start of time; what
// crosses the end goes on at the start.
func (q *sendQueue) bytes(off uint32, data []byte) {
	size := (q.mask + 1) * mlx5.BBLen
	at := off & (size - 1)
	n := copy(unsafe.Slice((*byte)(unsafe.Add(q.ring, at)), size-at), data)
	if n < len(data) {
		copy(unsafe.Slice((*byte)(q.ring), at), data[n:])
	}
}
