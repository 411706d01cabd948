package softhca

import (
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/cma"
	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// remoteMemory executes an RDMA write, read or atomic on the peer's memory,
// without the peer.
func (qp *queuePair) remoteMemory(w *mlx5.WQE, budget *int) verdict {
	r := &qp.req
	if r.packed {
		return qp.message(w)
	}
	if v, ok := qp.ready(); !ok {
		return v
	}
	if w.Len > maxMessage {
		return qp.failNext(mlx5.SyndromeLocalLength)
	}
	k := qp.walkSend(w, localNeed(w.Op))
	if r.moved == 0 && !k.valid() {
		return qp.failNext(mlx5.SyndromeLocalProt)
	}
	n := min(w.Len-r.moved, uint64(*budget))
	r.guard.Store(1) // a full barrier: pairs with the invalidation before guardsDown
	v, syn := qp.transfer(w, &k, n)
	mmio.StoreRelease32(unsafe.Pointer(r.guard), 0)
	switch {
	case syn != mlx5.SyndromeOK:
		return qp.refused(syn)
	case v == stepWait:
		return qp.awaitPeer()
	case r.packed:
		return qp.message(w)
	}
	r.moved += n
	*budget -= int(n)
	if r.moved < w.Len {
		return stepAgain
	}
	if w.Op == mlx5.OpRDMAWriteImm {
		return qp.message(w)
	}
	return qp.finish(w, uint32(w.Len))
}

// maxMessage is the longest message (IBTA volume 1, 9.7.6).
const maxMessage = 1 << 31

func localNeed(op mlx5.Opcode) verbs.Access {
	switch op {
	case mlx5.OpRDMARead, mlx5.OpAtomicFA, mlx5.OpAtomicCS:
		return verbs.AccessLocalWrite
	}
	return 0
}

func remoteNeed(op mlx5.Opcode) verbs.Access {
	switch op {
	case mlx5.OpRDMARead:
		return verbs.AccessRemoteRead
	case mlx5.OpAtomicFA, mlx5.OpAtomicCS:
		return verbs.AccessRemoteAtomic
	}
	return verbs.AccessRemoteWrite
}

// transfer checks the target and moves n bytes. The guard is up. stepWait says
// that the target QP is not ready.
func (qp *queuePair) transfer(w *mlx5.WQE, k *walk, n uint64) (verdict, mlx5.Syndrome) {
	r := &qp.req
	l := r.link
	e := l.table.qp(qp.attr.DestQPN)
	if !e.accepts(qp.attr.DestQPN, qp.qpn, &qp.hca.gidWords) {
		return stepWait, mlx5.SyndromeOK
	}
	need := remoteNeed(w.Op)
	if verbs.Access(e.access.Load())&need != need {
		return stepFail, mlx5.SyndromeRemoteInvalidReq
	}
	if w.Len == 0 {
		return stepDone, mlx5.SyndromeOK
	}
	if need == verbs.AccessRemoteAtomic && w.RAddr%mlx5.AtomicOperandLen != 0 {
		return stepFail, mlx5.SyndromeRemoteInvalidReq
	}
	m, ok := l.memory(w.RKey, w.RAddr, w.Len, e.pdn.Load(), need)
	if !ok {
		return stepFail, mlx5.SyndromeRemoteAccess
	}
	if m.private {
		return qp.transferPrivate(w, k, n)
	}
	return stepDone, qp.transferMapped(w, k, unsafe.Add(m.ptr, r.moved), n)
}

// transferMapped moves bytes from or to mapped memory.
func (qp *queuePair) transferMapped(w *mlx5.WQE, k *walk, p unsafe.Pointer, n uint64) mlx5.Syndrome {
	ok := true
	switch w.Op {
	case mlx5.OpRDMARead:
		ok = k.scatter(p, qp.req.moved, n)
	case mlx5.OpAtomicFA, mlx5.OpAtomicCS:
		old := applyAtomic(p, w.Op, w.SwapOrAdd, w.Compare)
		ok = k.scatter(unsafe.Pointer(&old), 0, mlx5.AtomicOperandLen)
	default:
		ok = k.gather(p, qp.req.moved, n)
	}
	if !ok {
		return mlx5.SyndromeLocalProt
	}
	return mlx5.SyndromeOK
}

// applyAtomic works on an aligned word with CPU atomics, so all QPs of all
// processes agree, and so does the target's CPU.
func applyAtomic(p unsafe.Pointer, op mlx5.Opcode, swapAdd, compare uint64) (old uint64) {
	word := (*atomic.Uint64)(p)
	if op == mlx5.OpAtomicFA {
		return word.Add(swapAdd) - swapAdd
	}
	for {
		old = word.Load()
		if old != compare || word.CompareAndSwap(old, swapAdd) {
			return old
		}
	}
}

// transferPrivate moves bytes from or to memory that is not mapped here. Where the
// kernel does not allow that, and for atomics, the request goes through the ring.
func (qp *queuePair) transferPrivate(w *mlx5.WQE, k *walk, n uint64) (verdict, mlx5.Syndrome) {
	r := &qp.req
	if !r.link.cma || remoteNeed(w.Op) == verbs.AccessRemoteAtomic {
		return qp.viaRing()
	}
	for off := r.moved; off < r.moved+n; {
		p, m := k.at(off)
		if p == nil {
			return stepFail, mlx5.SyndromeLocalProt
		}
		b := unsafe.Slice((*byte)(p), min(m, r.moved+n-off))
		if err := qp.attachCopy(w.Op, b, w.RAddr+off); err != nil {
			return qp.attachFailed(err)
		}
		off += uint64(len(b))
	}
	return stepDone, mlx5.SyndromeOK
}

func (qp *queuePair) attachCopy(op mlx5.Opcode, b []byte, raddr uint64) error {
	l := qp.req.link
	if op == mlx5.OpRDMARead {
		return qp.req.vec.Read(l.pid, b, raddr)
	}
	return qp.req.vec.Write(l.pid, b, raddr)
}

// attachFailed says what a refused cross-memory attach means.
func (qp *queuePair) attachFailed(err error) (verdict, mlx5.Syndrome) {
	switch err {
	case cma.ErrForbidden, cma.ErrUnsupported:
		return qp.viaRing()
	case cma.ErrGone:
		return stepFail, mlx5.SyndromeRetryExceeded
	case cma.ErrBadRange:
		return stepFail, mlx5.SyndromeRemoteAccess
	}
	return stepFail, mlx5.SyndromeRemoteOp
}

// viaRing makes the work request one that the peer executes, from its beginning.
func (qp *queuePair) viaRing() (verdict, mlx5.Syndrome) {
	qp.req.packed, qp.req.moved = true, 0
	return stepDone, mlx5.SyndromeOK
}
