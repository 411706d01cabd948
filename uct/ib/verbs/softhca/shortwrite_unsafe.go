package softhca

import (
	"unsafe"

	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// shortWrites executes the short writes to mapped memory at next, up to producer
// index pi, and stops at whatever needs the general way: step. False when the QP is in
// ERR. exec is held, the QP is in RTS and holds nothing back.
func (qp *queuePair) shortWrites(pi uint16) bool {
	r := &qp.req
	if r.guard == nil || r.opened || r.inFlight != 0 || r.link.state.Load() != linkUp {
		return true
	}
	for r.next != pi {
		w, ok := qp.sq.ShortWrite(r.next)
		if !ok {
			return true
		}
		n, signaled := qp.storeShort(w, pi)
		if n == 0 {
			return true
		}
		r.next += n
		r.acked = r.next
		r.deadline = 0
		if signaled && !qp.complete(mlx5.OpRDMAWrite, r.next-1, 0) {
			return false
		}
	}
	return true
}

// guardedWrites is how many short writes are stored while the guard is up: enough to
// make it cheap, few enough that nobody waits long for it.
const guardedWrites = 64

// storeShort checks and stores w, the short write at next, and those that follow it up
// to one that is signaled, the only one that gets a CQE. It returns how many.
func (qp *queuePair) storeShort(w mlx5.ShortWrite, pi uint16) (n uint16, signaled bool) {
	r := &qp.req
	l := r.link
	r.guard.Store(1) // a full barrier: pairs with the invalidation before guardsDown
	e := l.table.qp(qp.attr.DestQPN)
	ok := e.accepts(qp.attr.DestQPN, qp.qpn, &qp.hca.gidWords) &&
		verbs.Access(e.access.Load())&verbs.AccessRemoteWrite != 0
	pdn := e.pdn.Load()
	for ok && l.storeShort(w, pdn) {
		signaled = w.Signaled()
		n++
		if signaled || r.next+n == pi || n == guardedWrites {
			break
		}
		w, ok = qp.sq.ShortWrite(r.next + n)
	}
	mmio.StoreRelease32(unsafe.Pointer(r.guard), 0)
	return n, signaled
}

// storeShort stores the bytes of a write, if it may and they go to mapped memory.
func (l *outLink) storeShort(w mlx5.ShortWrite, pdn uint32) bool {
	raddr, rkey := w.Target()
	b := w.Data()
	m, ok := l.memory(rkey, raddr, uint64(len(b)), pdn, verbs.AccessRemoteWrite)
	if !ok || m.private {
		return false
	}
	move(m.ptr, unsafe.Pointer(unsafe.SliceData(b)), uint64(len(b)))
	return true
}
