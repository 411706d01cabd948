package softhca

import (
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/cma"
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/softhca/internal/table"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// remoteMemory executes an RDMA write, read or atomic on the memory of the peer, without the
// peer if possible.
func (qp *queuePair) remoteMemory(w *prm.WQE, budget *int) stepResult {
	r := &qp.req
	if r.packed {
		return qp.message(w)
	}
	if v, ok := qp.ready(); !ok {
		return v
	}
	if w.Len > maxMessage {
		return qp.failNext(prm.SyndromeLocalLength)
	}
	var k walk
	k.begin(qp, w, localNeed(w.Op))
	if r.moved == 0 && !k.valid() {
		return qp.failNext(prm.SyndromeLocalProt)
	}
	n := min(w.Len-r.moved, uint64(*budget))
	qp.exec.Quiescent() // enter is the barrier
	idle := r.guard.enter(w.RKey)
	v, syn := qp.transfer(w, &k, n)
	r.guard.Leave(idle)
	switch {
	case syn != prm.SyndromeOK:
		return qp.failWithPeer(syn)
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
	if w.Op == prm.OpRDMAWriteImm {
		return qp.message(w)
	}
	return qp.finish(w, uint32(w.Len))
}

// maxMessage is the maximum length of a message (IBTA volume 1, 9.7.6).
const maxMessage = 1 << 31

func localNeed(op prm.Opcode) verbs.Access {
	switch op {
	case prm.OpRDMARead, prm.OpAtomicFA, prm.OpAtomicCS:
		return verbs.AccessLocalWrite
	}
	return 0
}

func remoteNeed(op prm.Opcode) verbs.Access {
	switch op {
	case prm.OpRDMARead:
		return verbs.AccessRemoteRead
	case prm.OpAtomicFA, prm.OpAtomicCS:
		return verbs.AccessRemoteAtomic
	}
	return verbs.AccessRemoteWrite
}

// transfer checks the access and moves n bytes. The guard is up. stepWait means that the target
// QP is not ready.
func (qp *queuePair) transfer(w *prm.WQE, k *walk, n uint64) (stepResult, prm.Syndrome) {
	r := &qp.req
	l := r.link
	e := qp.peerEntry()
	if !e.Accepts(qp.attr.DestQPN, qp.qpn, &qp.hca.gidWords) {
		return stepWait, prm.SyndromeOK
	}
	need := remoteNeed(w.Op)
	if verbs.Access(e.Access.Load())&need != need {
		return stepFail, prm.SyndromeRemoteInvalidReq
	}
	pdn, ok := qp.remotePD(w, e)
	if !ok {
		return stepFail, prm.SyndromeRemoteInvalidReq
	}
	if w.Len == 0 {
		return stepDone, prm.SyndromeOK
	}
	if need == verbs.AccessRemoteAtomic && w.RAddr%prm.AtomicOperandLen != 0 {
		return stepFail, prm.SyndromeRemoteInvalidReq
	}
	m, ok := l.memory(w.RKey, w.RAddr, w.Len, pdn, need)
	if !ok {
		return stepFail, prm.SyndromeRemoteAccess
	}
	if m.private {
		return qp.transferPrivate(w, k, n)
	}
	return stepDone, qp.transferMapped(w, k, unsafe.Add(m.ptr, r.moved), n)
}

// remotePD returns the protection domain of the peer's memory for a work request: that of the
// peer's QP, whose table entry is e, or with XRC that of the SRQ. False if there is no such SRQ in
// the XRC domain of the target.
func (qp *queuePair) remotePD(w *prm.WQE, e *table.QP) (pdn uint32, ok bool) {
	if qp.service != verbs.QPTypeXRCSend {
		return e.PDN.Load(), true
	}
	s := qp.req.link.table.SRQ(w.SRQN)
	pdn = s.PDN.Load()
	return pdn, e.Service.Load() == uint32(verbs.QPTypeXRCRecv) && qp.sameDomain(s, e) &&
		s.SRQN.Load() == w.SRQN && w.SRQN != 0
}

// sameDomain reports whether an SRQ of the peer is in the XRC domain of the target.
func (qp *queuePair) sameDomain(s *table.SRQ, e *table.QP) bool {
	if p := qp.req.shared; p != nil {
		return s.Inode.Is(p.view.key)
	}
	return s.XRCDN.Load() == e.XRCDN.Load()
}

// transferMapped moves bytes from or to mapped memory.
func (qp *queuePair) transferMapped(w *prm.WQE, k *walk, p unsafe.Pointer, n uint64) prm.Syndrome {
	ok := true
	switch w.Op {
	case prm.OpRDMARead:
		ok = k.scatter(p, qp.req.moved, n)
	case prm.OpAtomicFA, prm.OpAtomicCS:
		old := applyAtomic(p, w.Op, w.SwapOrAdd, w.Compare)
		ok = k.scatter(unsafe.Pointer(&old), 0, prm.AtomicOperandLen)
	default:
		ok = k.gather(p, qp.req.moved, n)
	}
	if !ok {
		return prm.SyndromeLocalProt
	}
	return prm.SyndromeOK
}

// applyAtomic uses CPU atomics on an aligned word, so it is atomic with respect to all QPs of all
// processes and to the CPU of the target.
func applyAtomic(p unsafe.Pointer, op prm.Opcode, swapAdd, compare uint64) (old uint64) {
	word := (*atomic.Uint64)(p)
	if op == prm.OpAtomicFA {
		return word.Add(swapAdd) - swapAdd
	}
	for {
		old = word.Load()
		if old != compare || word.CompareAndSwap(old, swapAdd) {
			return old
		}
	}
}

// transferPrivate moves bytes from or to memory that is not mapped here. If the kernel does not
// allow that, and for atomics, the request goes through the ring.
func (qp *queuePair) transferPrivate(w *prm.WQE, k *walk, n uint64) (stepResult, prm.Syndrome) {
	r := &qp.req
	if !r.link.cma || remoteNeed(w.Op) == verbs.AccessRemoteAtomic {
		return qp.viaRing()
	}
	for off := r.moved; off < r.moved+n; {
		p, m := k.at(off)
		if p == nil {
			return stepFail, prm.SyndromeLocalProt
		}
		b := unsafe.Slice((*byte)(p), min(m, r.moved+n-off))
		if err := qp.attachCopy(w.Op, b, w.RAddr+off); err != nil {
			return qp.attachFailed(err)
		}
		off += uint64(len(b))
	}
	return stepDone, prm.SyndromeOK
}

func (qp *queuePair) attachCopy(op prm.Opcode, b []byte, raddr uint64) error {
	l := qp.req.link
	if op == prm.OpRDMARead {
		return qp.req.vec.Read(l.pid, b, raddr)
	}
	return qp.req.vec.Write(l.pid, b, raddr)
}

// attachFailed returns the result of a step whose cross-memory attach has failed with err.
func (qp *queuePair) attachFailed(err error) (stepResult, prm.Syndrome) {
	switch err {
	case cma.ErrForbidden, cma.ErrUnsupported:
		return qp.viaRing()
	case cma.ErrGone:
		return stepFail, qp.req.deadPeerSyndrome()
	case cma.ErrBadRange:
		return stepFail, prm.SyndromeRemoteAccess
	}
	return stepFail, prm.SyndromeRemoteOp
}

// viaRing restarts the work request, which the peer then executes.
func (qp *queuePair) viaRing() (stepResult, prm.Syndrome) {
	qp.req.packed, qp.req.moved = true, 0
	return stepDone, prm.SyndromeOK
}
