package softhca

import (
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/softhca/internal/ring"
	"github.com/gucx/gucx/internal/softhca/internal/table"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// enterError moves the QP to ERR. The oldest unfinished send work request, if there is one,
// completes with syn, unless syn is a flush. All others are flushed; receives when the device
// is driven next. peer is the syndrome for the QP of the peer, or SyndromeOK. exec is held.
func (qp *queuePair) enterError(syn, peer prm.Syndrome) {
	if qp.is(verbs.QPStateErr) || qp.is(verbs.QPStateReset) || !qp.setState(verbs.QPStateErr) {
		return
	}
	if qp.timed != nil {
		qp.timed.fail()
	}
	r := &qp.req
	r.fault = peer
	r.opened, r.routed = false, false
	qp.dropClaim()
	qp.stopStarving()
	r.next, r.inFlight, r.read = r.acked, 0, 0
	unreported := syn != prm.SyndromeWRFlush
	if unreported && r.next != qp.dbrec.Send() {
		qp.retireWithError(syn)
		unreported = false
	}
	qp.sendFault() // if there is no room, runStopped sends it
	qp.flushSends()
	if unreported {
		qp.raiseFault(qp.faultEvent(syn))
	}
	qp.hca.schedule(qp) // for flushReceives
}

// faultEvent returns the event for a fault with a syndrome.
func (qp *queuePair) faultEvent(syn prm.Syndrome) verbs.EventType {
	if syn == prm.SyndromeRetryExceeded && qp.peerVendorErr() == verbs.VendorPeerClosed {
		return verbs.EventPeerClosed
	}
	return verbs.EventQPFatal
}

// peerVendorErr returns the vendor error for a peer that does not reply; 0 if the device does
// not know the cause. exec is held.
func (qp *queuePair) peerVendorErr() uint8 {
	l := qp.req.link
	switch {
	case qp.req.died:
		return verbs.VendorPeerGone
	case l == nil:
		return 0
	}
	switch linkEnd(l.end.Load()) {
	case endClosed:
		return verbs.VendorPeerClosed
	case endGone, endBroken:
		return verbs.VendorPeerGone
	}
	if l.state.Load() == linkUp && qp.peerDestroyed() {
		return verbs.VendorPeerClosed
	}
	return 0
}

// flushReceives completes the receives of a QP in ERR as flushed: first that of the open message,
// then the posted ones. driving is held, so no message fills the first one any more.
func (qp *queuePair) flushReceives() {
	s := &qp.resp
	qp.abortOpen()
	qp.flushPosted()
	if qp.rq.shared() && !s.lastRaised {
		s.lastRaised = true
		qp.hca.raise(verbs.EventQPLastWQEReached, qp.handle)
	}
}

// abortOpen ends the open message. If it is a send, its receive completes as flushed: no other
// code would complete it, as it is no longer in its queue. driving is held.
func (qp *queuePair) abortOpen() {
	m := &qp.resp.open
	send := m.kind == ring.OpSend
	m.close()
	if send {
		qp.recvError(m.queue, &m.entry, prm.SyndromeWRFlush)
	}
}

// retireWithError writes an error CQE for the work request at next and advances next.
func (qp *queuePair) retireWithError(syn prm.Syndrome) {
	r := &qp.req
	e := prm.CQE{Opcode: prm.CQEReqErr, UserIndex: qp.uidx, QPN: qp.qpn,
		WQECounter: r.next, SendOp: prm.Opcode(qp.sq.BB(uint32(r.next))[3]), Syndrome: syn}
	switch {
	case syn == prm.SyndromeRetryExceeded:
		e.VendorErr = qp.peerVendorErr()
	case syn == prm.SyndromeRemoteInvalidReq && r.died:
		e.VendorErr = verbs.VendorPeerGone
	}
	bbs := prm.SkipWQE(&qp.sq, r.next, qp.dbrec.Send())
	r.next += uint16(bbs)
	r.acked = r.next
	if !qp.sendCQ.push(&e) {
		qp.failOverrun()
	}
}

// flushSends completes all posted send work requests as flushed.
func (qp *queuePair) flushSends() {
	for qp.req.next != qp.dbrec.Send() {
		qp.retireWithError(prm.SyndromeWRFlush)
	}
}

// flushPosted completes all posted receives of the QP as flushed, but none of an SRQ.
func (qp *queuePair) flushPosted() {
	if qp.receivesShared() {
		return
	}
	var entry recvEntry
	for {
		ok, _ := qp.rq.pop(&entry)
		if !ok {
			return
		}
		qp.recvError(qp.rq, &entry, prm.SyndromeWRFlush)
	}
}

// recvError writes an error CQE for a receive of q.
func (qp *queuePair) recvError(q *recvQueue, entry *recvEntry, syn prm.Syndrome) {
	cq, uidx := q.cqOf(qp)
	e := prm.CQE{Opcode: prm.CQERespErr, UserIndex: uidx, QPN: qp.qpn,
		WQECounter: entry.index, Syndrome: syn}
	if !cq.push(&e) {
		qp.failOverrun()
	}
}

// failOverrun stops a QP after an overrun of its CQ: the results of its work requests cannot be
// reported. exec or driving is held.
func (qp *queuePair) failOverrun() {
	if qp.is(verbs.QPStateErr) || !qp.setState(verbs.QPStateErr) {
		return
	}
	qp.raiseFault(qp.fatal())
	qp.hca.schedule(qp) // for flushReceives
}

// fatal returns the event for a fault of this side, or of a cause without a specific event.
// EventQPFatal of an XRC target means that the device of its initiator is gone.
func (qp *queuePair) fatal() verbs.EventType {
	if qp.domain != nil {
		return verbs.EventQPReqErr
	}
	return verbs.EventQPFatal
}

// raiseFault reports an event of a QP that has gone to ERR. If the QP is a target in a shared
// domain, all devices that refer to it get the event. driving is held for a target, else exec
// or driving.
func (qp *queuePair) raiseFault(t verbs.EventType) {
	switch {
	case !qp.isShared():
		qp.hca.raise(t, qp.handle)
	case !qp.replaced() && qp.entry.Load() == table.ErrorOf(qp.epoch):
		qp.hca.notifyMembers(qp.domain, qp.entry, t)
		qp.reportFault()
	}
}

// raise reports an asynchronous event.
func (h *hca) raise(t verbs.EventType, number uint32) {
	if s := h.sink.Load(); s != nil {
		(*s).AsyncEvent(t, number)
	}
}
