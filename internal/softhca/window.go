package softhca

import (
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/softhca/internal/ring"
	"github.com/gucx/gucx/internal/softhca/internal/table"
	"github.com/gucx/gucx/internal/softhca/internal/xrcdomain"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// recvWindow has the published receives of an XRC SRQ. Their numbers are in the order of the driver's
// ring, modulo 2^16. recvQueue.mu protects it.
//
//	base .......... posted
//	     published; some behind base may be consumed
type recvWindow struct {
	base, posted uint16
	slots        [table.ShownRecvs]windowSlot
	scratch      prm.SGList
	claim        *table.ClaimWord
	entry        *table.SRQ
}

// windowSlot is a published receive.
type windowSlot struct {
	index uint16 // of the entry in the driver's ring
	done  bool   // consumed
	total uint64
	syn   prm.Syndrome // not SyndromeOK if the entry is malformed
}

// isShown reports whether receive seq is published and not consumed.
func (w *recvWindow) isShown(seq uint16) bool {
	return seq-w.base < w.posted-w.base && !w.slots[seq%table.ShownRecvs].done
}

// Posted implements prm.RecvDoorbell. It does not publish receives of a queue that is closing, whose
// slot may already belong to another queue.
func (q *recvQueue) Posted() {
	q.mu.Lock()
	if !q.xrc.closing.Load() {
		q.show()
	}
	q.mu.Release()
	q.hca.wakeStarving()
}

// show publishes receives of the driver's ring while the window has room. mu is held.
func (q *recvQueue) show() {
	w := q.xrc.window
	end := q.dbrec.Recv()
	for w.posted != end && w.posted-w.base < table.ShownRecvs {
		s := &w.slots[w.posted%table.ShownRecvs]
		*s = windowSlot{index: q.next}
		segs := q.view.Entry(uint32(q.next))
		q.next = prm.SRQNext(&segs[0])
		var n int
		n, s.total, s.syn = prm.DecodeRecv(segs[1:][:min(q.maxSGE, len(segs)-1)], &w.scratch)
		if q.hca.arena != nil {
			q.showAt(q.hca.table.Recv(q.srqn, w.posted), n, s.syn)
		}
		w.posted++
	}
	w.entry.Posted.Store(uint32(w.posted)) // after the receives
}

// showAt publishes the receive that is decoded in scratch.
func (q *recvQueue) showAt(d *table.Recv, n int, syn prm.Syndrome) {
	w := q.xrc.window
	*d = table.Recv{Seq: uint32(w.posted), NSGE: uint32(n)}
	if n > table.ShownSGEs || syn != prm.SyndromeOK {
		d.NSGE = table.RecvHidden
		return
	}
	copy(d.SGE[:], w.scratch[:n])
}

// popShown is pop for an XRC SRQ. busy means that a peer is filling the next receive.
func (q *recvQueue) popShown(e *recvEntry) (ok, busy bool, syn prm.Syndrome) {
	q.mu.Lock()
	q.show()
	w := q.xrc.window
	for {
		word := w.claim.Load()
		id, seq := table.SplitClaim(word)
		if id != 0 {
			q.mu.Release()
			return false, true, prm.SyndromeOK
		}
		if seq != w.posted && !w.isShown(seq) {
			seq = w.base // the claim word is not valid
		}
		if seq == w.posted {
			q.mu.Release()
			return false, false, prm.SyndromeOK
		}
		if w.claim.CompareAndSwap(word, table.Claimed(0, seq+1)) {
			ok = true
			syn = q.decode(e, &w.slots[seq%table.ShownRecvs])
			q.consume(seq)
			return ok, false, syn
		}
	}
}

// decode reads a published receive.
func (q *recvQueue) decode(e *recvEntry, s *windowSlot) (syn prm.Syndrome) {
	segs := q.view.Entry(uint32(s.index))[1:]
	e.index = s.index
	e.nsge, e.total, syn = prm.DecodeRecv(segs[:min(q.maxSGE, len(segs))], &e.sge)
	return syn
}

// retireFilled retires receive seq, which device id has filled with n bytes according to its
// notice, and returns the entry in the driver's ring. It returns false if the notice is invalid.
func (q *recvQueue) retireFilled(seq uint16, n uint32, id uint64) (index uint16, ok bool) {
	q.mu.Lock()
	w := q.xrc.window
	by, next := table.SplitClaim(w.claim.Load())
	claimed := next-seq-1 < table.ShownRecvs || next == seq && by == id
	s := &w.slots[seq%table.ShownRecvs]
	if !claimed || !w.isShown(seq) || uint64(n) > s.total {
		q.mu.Release()
		return 0, false
	}
	index = s.index
	q.consume(seq)
	return index, true
}

// consume retires receive seq, publishes further receives, and unlocks mu, which is held.
func (q *recvQueue) consume(seq uint16) {
	w := q.xrc.window
	w.slots[seq%table.ShownRecvs].done = true
	for w.base != w.posted && w.slots[w.base%table.ShownRecvs].done {
		w.base++
	}
	q.consumed++
	before := w.posted
	q.show()
	more := w.posted != before
	hit := int(q.dbrec.Recv()-q.consumed) < q.limit
	if hit {
		q.limit = 0
	}
	q.mu.Release()
	if more {
		q.hca.wakeStarving()
	}
	if hit {
		q.hca.raise(verbs.EventSRQLimitReached, q.handle())
	}
}

// handleNotice handles an OpFilled packet: the peer has filled a receive and completed its send.
func (l *inLink) handleNotice(pkt *ring.Packet) {
	if q := l.hca.xrcSRQs.findAny(pkt.Ext); q != nil {
		l.handleNoticeOf(q, pkt)
	}
}

// handleNoticeOf is handleNotice for a known queue.
func (l *inLink) handleNoticeOf(q *recvQueue, pkt *ring.Packet) {
	known := l.isSender(q.xrc.domain, pkt)
	index, ok := q.retireFilled(uint16(pkt.RAddr), pkt.Total, table.ClaimID(l.gid))
	lost := ok && !q.complete(pkt, index, known)
	if !known || ok && !lost {
		return
	}
	if qp := l.receiver(pkt); qp == nil {
		return // it was destroyed meanwhile
	} else if lost {
		qp.failOverrun()
	} else {
		qp.invalidRequest()
	}
}

// isSender reports whether a packet was sent over a target in a domain, by its initiator.
func (l *inLink) isSender(d *xrcDomain, pkt *ring.Packet) bool {
	if d.dir != nil {
		return l.isSharedSender(table.TargetEntry(&d.dir.View, pkt.DstQPN), pkt)
	}
	qp := l.hca.qps.find(pkt.DstQPN)
	return qp != nil && qp.domain == d && qp.entry.From(pkt.SrcQPN, &l.gid)
}

// isSharedSender is isSender for a target in a shared domain. The target may have been destroyed
// since, after the process of its initiator has died: messages that were complete before are still
// accepted. Only processes of this user, which can write to the directory, are trusted in that.
func (l *inLink) isSharedSender(e *table.QP, pkt *ring.Packet) bool {
	if !e.Destroyed(pkt.DstQPN) && e.From(pkt.SrcQPN, &l.gid) {
		return true
	}
	// Destruction clears the number before the connection.
	return e.Destroyed(pkt.DstQPN) && l.sameUser && pkt.DstQPN&xrcdomain.NumberBit != 0
}

// handleLastNotices handles the notices in the ring for a queue that is closing. They remain in the
// ring; handleNotice will ignore them, as it does not find the queue. driving is held.
func (l *inLink) handleLastNotices(q *recvQueue) {
	l.eachNotice(func(pkt *ring.Packet) {
		if pkt.Ext == q.srqn {
			l.handleNoticeOf(q, pkt)
		}
	})
}

// eachNotice calls f with the notices in the ring, and does not consume them. driving is held.
func (l *inLink) eachNotice(f func(pkt *ring.Packet)) {
	if l.rejected {
		return
	}
	l.req.Each(func(pkt *ring.Packet) {
		if pkt.Op == ring.OpFilled {
			f(pkt)
		}
	})
}

// complete writes the completion of a receive that a peer has filled. If the peer is not connected
// (known is false), the receive completes as flushed. False if the CQ has overrun.
func (q *recvQueue) complete(pkt *ring.Packet, index uint16, known bool) bool {
	e := prm.CQE{Opcode: prm.CQERespSend, Solicited: pkt.Flags&ring.FlagSolicited != 0, UserIndex: q.xrc.uidx,
		WQECounter: index, QPN: pkt.DstQPN, ByteCount: pkt.Total, Imm: pkt.Imm, SrcQP: pkt.SrcQPN}
	switch {
	case !known:
		e = prm.CQE{Opcode: prm.CQERespErr, UserIndex: q.xrc.uidx, QPN: pkt.DstQPN, WQECounter: index,
			Syndrome: prm.SyndromeWRFlush}
	case pkt.Flags&ring.FlagImm != 0:
		e.Opcode = prm.CQERespSendImm
	}
	return q.xrc.cq.push(&e)
}
