package softhca

import (
	"unsafe"

	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5/prm"
)

// shortWrites executes the short writes to mapped memory at next, up to producer
// index pi, and stops at whatever needs the general way: step. False when the QP is in
// ERR. exec is held, the QP is in RTS and holds nothing back.
func (qp *queuePair) shortWrites(pi uint16) bool {
	r := &qp.req
	if r.guard == nil || r.opened || r.inFlight != 0 {
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
		if signaled && !qp.complete(prm.OpRDMAWrite, r.next-1, 0) {
			return false
		}
	}
	return true
}

// guardedWrites is how many short writes are stored while the guard is up: enough to
// make it cheap, few enough that no thread waits long for it.
const guardedWrites = 64

// storeShort checks and stores w, the short write at next, and those to the same region
// that follow it, up to one that is signaled, the only one that gets a CQE. It returns
// how many.
func (qp *queuePair) storeShort(w prm.ShortWrite, pi uint16) (n uint16, signaled bool) {
	r := &qp.req
	raddr, rkey := w.Target()
	idle := r.guard.enter(rkey)
	gen := r.link.table.Generation().Load()
	for {
		b := w.Data()
		p := r.grant.find(gen, rkey, raddr, uint64(len(b)))
		if p == nil {
			qp.requestGrant(gen, rkey)
			if p = r.grant.find(gen, rkey, raddr, uint64(len(b))); p == nil {
				break
			}
		}
		move(p, unsafe.Pointer(unsafe.SliceData(b)), uint64(len(b)))
		signaled = w.Signaled()
		n++
		if signaled || n == guardedWrites || r.next+n == pi {
			break
		}
		var ok bool
		if w, ok = qp.sq.ShortWrite(r.next + n); !ok {
			break
		}
		key := rkey
		if raddr, rkey = w.Target(); rkey != key {
			break // the guard names one region
		}
	}
	r.guard.Leave(idle)
	return n, signaled
}

// grant is a right to write to a region that the peer maps, as the peer's table had it at
// one of its generations. It stands as long as the table has that generation, which is
// to be loaded with the guard up.
type grant struct {
	gen uint64 // 0: nothing is granted
	key uint32
	guard.Span
}

// find is the memory for n bytes at raddr; nil if they are not granted.
func (g *grant) find(gen uint64, key uint32, raddr, n uint64) unsafe.Pointer {
	if g.gen != gen || g.key != key {
		return nil
	}
	return g.At(raddr, n)
}

// requestGrant looks up what the QP may write to with a key. The guard is up, and gen was the
// table's generation since then. It leaves no grant where the answer is no, or the
// memory is not mapped.
//
//go:noinline
func (qp *queuePair) requestGrant(gen uint64, key uint32) {
	r := &qp.req
	r.grant = grant{}
	const need = verbs.AccessRemoteWrite
	e := qp.peerEntry()
	if !e.Accepts(qp.attr.DestQPN, qp.qpn, &qp.hca.gidWords) || verbs.Access(e.Access.Load())&need == 0 {
		return
	}
	m := r.link.table.MR(key)
	addr, n := m.Addr.Load(), m.Len.Load()
	if to, ok := r.link.memory(key, addr, n, e.PDN.Load(), need); ok && !to.private {
		r.grant = grant{gen: gen, key: key, Span: guard.Span{Base: to.ptr, Shift: -addr, Len: n}}
	}
}
