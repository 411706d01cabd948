package dv

import (
	"unsafe"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/mlx5/provider"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// sendQueue is the producer of the send ring of a QP. It does not check for room, because the core
// posts no more work requests than the QP has.
//
// ids has one element for each basic block of the ring, a power of two, and every index is masked,
// so accesses are always inside. The ring remains mapped until the QP is closed, which the core
// does after the last post. idMem keeps ids alive.
type sendQueue struct {
	prm.SendRing
	ids  unsafe.Pointer // *uint64: number of the work request that begins at a basic block
	mask uint32         // number of basic blocks - 1
	pi   uint32         // number of basic blocks written
	reg  *register
	dbr  prm.DBRec

	// State of register.batch.
	inBatch  bool // in register.batched
	batched  int
	last     uint32
	lastWord uint64

	qpn      uint32
	guard    *provider.Guard // of the thread domain
	datagram bool
	idMem    []uint64
}

// open uses the send queue of a QP.
func (q *sendQueue) open(qp *verbs.QP, raw provider.RawQP, reg *register) error {
	view, err := prm.NewSQView(raw.SQ.Buf, raw.SQ.Count, raw.QPN, qp.Type())
	if err != nil {
		return err
	}
	q.SendRing, q.mask = prm.NewSendRing(view, qp.Cap(), false), raw.SQ.Count-1
	q.idMem = make([]uint64, raw.SQ.Count)
	q.ids = unsafe.Pointer(unsafe.SliceData(q.idMem))
	q.reg, q.dbr, q.qpn, q.guard = reg, raw.DBRec, raw.QPN, raw.Guard
	q.datagram = qp.Type() == verbs.QPTypeUD
	reg.addQueue()
	return nil
}

// id returns the location of the number of the work request that begins at basic block i.
func (q *sendQueue) id(i uint32) *uint64 {
	return (*uint64)(unsafe.Add(q.ids, uintptr(i&q.mask)*8))
}

// ringBB completes the post of a work request whose WQE is b, the basic block at pi.
func (q *sendQueue) ringBB(word uint64, b *prm.BB, number uint64) {
	i := q.pi
	*q.id(i) = number
	i++
	q.pi = i
	switch r := q.reg; {
	case r.direct:
		q.dbr.StoreSend(uint16(i))
		r.copyBB(word, b)
	case r.batching:
		r.batch(q, word, i-1, 1)
	default:
		q.dbr.StoreSend(uint16(i))
		r.ringBB(word, b)
	}
}

// ringBBs is ringBB for a WQE of several basic blocks that begins at pi.
func (q *sendQueue) ringBBs(word uint64, number uint64) {
	first, n := q.pi, prm.WordBBs(word)
	*q.id(first) = number
	q.pi = first + n
	switch r := q.reg; {
	case r.direct && n*prm.BBLen <= r.bfLen:
		q.dbr.StoreSend(uint16(first + n))
		r.copyBBs(word, q, first, n)
	case r.batching:
		r.batch(q, word, first, 1)
	default:
		q.dbr.StoreSend(uint16(first + n))
		r.ringList(word, q, first, true)
	}
}
