package softhca

import (
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// enterError moves the QP to ERR: the oldest unfinished send work request gets
// syn, if any is posted and syn is not a flush, and everything else is flushed.
// told is what the peer's QP is told, or SyndromeOK. exec is held.
func (qp *queuePair) enterError(syn, told mlx5.Syndrome) {
	if qp.is(verbs.QPStateErr) || qp.is(verbs.QPStateReset) {
		return
	}
	qp.setState(verbs.QPStateErr)
	if qp.timed != nil {
		qp.timed.fail()
	}
	r := &qp.req
	r.fault = told
	r.opened = false
	r.next, r.inFlight = r.acked, 0
	silent := syn != mlx5.SyndromeWRFlush
	if silent && r.next != qp.dbrec.Send() {
		qp.retireWithError(syn)
		silent = false
	}
	if !qp.sendFault() {
		qp.hca.schedule(qp)
	}
	qp.flushSends()
	qp.flushRecvs()
	if silent { // no completion tells of the fault
		qp.hca.raise(verbs.EventQPFatal, qp.qpn)
	}
	if qp.rq.shared() {
		qp.hca.raise(verbs.EventQPLastWQEReached, qp.qpn)
	}
}

// retireWithError writes an error CQE for the work request at next and steps over
// it.
func (qp *queuePair) retireWithError(syn mlx5.Syndrome) {
	r := &qp.req
	e := mlx5.CQE{Opcode: mlx5.CQEReqErr, UserIndex: qp.uidx, QPN: qp.qpn,
		WQECounter: r.next, SendOp: mlx5.Opcode(qp.sq.BB(uint32(r.next))[3]), Syndrome: syn}
	bbs := mlx5.SkipWQE(&qp.sq, r.next, qp.dbrec.Send())
	r.next += uint16(bbs)
	r.acked = r.next
	if !qp.sendCQ.push(&e) {
		qp.lost()
	}
}

// flushSends completes all posted send work requests as flushed.
func (qp *queuePair) flushSends() {
	for qp.req.next != qp.dbrec.Send() {
		qp.retireWithError(mlx5.SyndromeWRFlush)
	}
}

// flushRecvs completes all posted receives as flushed; those of an SRQ stay.
func (qp *queuePair) flushRecvs() {
	if qp.rq.shared() {
		return
	}
	var entry recvEntry
	for {
		ok, _ := qp.rq.take(&entry)
		if !ok {
			return
		}
		qp.recvError(&entry, mlx5.SyndromeWRFlush)
	}
}

// recvError writes an error CQE for a receive.
func (qp *queuePair) recvError(entry *recvEntry, syn mlx5.Syndrome) {
	e := mlx5.CQE{Opcode: mlx5.CQERespErr, UserIndex: qp.rq.uidx, QPN: qp.qpn,
		WQECounter: entry.index, Syndrome: syn}
	if !qp.recvCQ.push(&e) {
		qp.lost()
	}
}

// lost stops a QP whose CQ has overrun: there is nowhere to say what became of its
// work. exec or driving is held.
func (qp *queuePair) lost() {
	if qp.is(verbs.QPStateErr) {
		return
	}
	qp.setState(verbs.QPStateErr)
	qp.hca.raise(verbs.EventQPFatal, qp.qpn)
}

// raise reports an asynchronous event.
func (h *hca) raise(t verbs.EventType, number uint32) {
	if s := h.sink.Load(); s != nil {
		(*s).AsyncEvent(t, number)
	}
}
