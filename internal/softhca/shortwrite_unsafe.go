package softhca

import (
	"unsafe"

	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// shortWrites executes the short writes to mapped memory at next, up to producer
// index pi or to a work request that needs step. False if the QP is in ERR. exec is held, and the
// QP is in RTS and not in an RNR delay.
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

// guardedWrites limits the short writes of one visit: enough to make the guard cheap, and few
// enough that no thread waits long for it.
const guardedWrites = 64

// storeShort checks and stores w, the short write at next, and the following ones to the same
// region, up to a signaled one, the only one that gets a CQE. It returns their number.
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

// grant is the cached permission to write to a mapped region of the peer. It is valid while the
// table of the peer has the same generation, which must be loaded with the guard up.
type grant struct {
	gen uint64 // 0: nothing is granted
	key uint32
	guard.Span
}

// find returns the memory for n bytes at raddr; nil if there is no grant for them.
func (g *grant) find(gen uint64, key uint32, raddr, n uint64) unsafe.Pointer {
	if g.gen != gen || g.key != key {
		return nil
	}
	return g.At(raddr, n)
}

// requestGrant looks up the permission to write with a key. The guard is up, and gen is the
// generation that was loaded since then. There is no grant if access is not allowed, or the memory
// is not mapped.
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
