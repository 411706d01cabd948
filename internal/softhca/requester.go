package softhca

import (
	"github.com/gucx/gucx/internal/cma"
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// requester executes the send queue. Indexes count basic blocks.
//
//	acked ............ next ............ producer index
//	  two-sided work     not started
//	  without acknowledgement
type requester struct {
	next   uint16
	acked  uint16
	opened bool   // wqe contains the work request at next
	packed bool   // it goes through the ring, although the initiator could have executed it
	bbs    uint16 // its length
	moved  uint64 // bytes of it that have been moved
	wqe    prm.WQE

	path
	grant   grant
	shared  *sharedPeer   // of an initiator whose target is in a shared domain, once that is known
	views   []*domainView // the shared domains that were searched for the target
	counted bool          // the link counts the QP
	routed  bool          // of such an initiator: path is that of the work request at next
	died    bool          // the process of the peer of the work request at next is dead

	out     delivery
	vec     cma.Vec
	udLinks []*outLink // UD: the links to all destinations, the latest one first

	inFlight uint32 // messages sent and not acknowledged
	read     uint64 // bytes that have arrived for the oldest of them, a read

	rnrLeft  uint8
	busy     uint8 // consecutive tries that found the receive claimed by another device
	deadline int64 // time limit of the wait for the QP of the peer; 0: not waiting
	holdTill int64 // no work request starts before this time: the RNR delay; 0: none
	fault    prm.Syndrome
}

// path is the path of a QP to a device.
type path struct {
	link      *outLink
	guard     *queueGuard
	guardSlot uint32
	msn       uint32 // message number of the next two-sided message
}

// releaseGuard returns the guard to the link.
func (p *path) releaseGuard() {
	if p.guard != nil {
		p.link.releaseGuard(p.guardSlot)
		p.guard = nil
	}
}

// stepResult is the result of a step.
type stepResult uint8

const (
	stepDone  stepResult = iota // continue with the next work request
	stepAgain                   // the budget is used up: run again soon
	stepWait                    // an event will schedule the QP: a response, room, a link, a timer
	stepFail                    // the QP is in ERR
)

// runOrSchedule executes the posted work requests until one must wait. If another thread is
// executing the QP, which may have read an older doorbell record, runOrSchedule puts the QP on the
// run list, so that the thread that drives the device runs it again.
func (qp *queuePair) runOrSchedule() {
	if !qp.exec.Held.CompareAndSwap(0, 1) {
		qp.hca.schedule(qp)
		return
	}
	v := qp.run()
	qp.exec.Release()
	if v == stepAgain {
		qp.hca.schedule(qp)
	}
}

// run executes work requests in order. exec is held.
func (qp *queuePair) run() stepResult {
	r := &qp.req
	if !qp.is(verbs.QPStateRTS) {
		return qp.runStopped()
	}
	if r.holdTill != 0 {
		if qp.hca.clock() < r.holdTill {
			return qp.sleepUntil(r.holdTill)
		}
		r.holdTill = 0
	}
	budget := qp.hca.cfg.InlineBudget
	for pi := qp.limit(); r.next != pi; {
		if !qp.shortWrites(pi) {
			return stepFail
		}
		if r.next == pi {
			break
		}
		if v := qp.step(pi, &budget); v != stepDone {
			return v
		}
		if r.next == pi {
			pi = qp.limit()
		}
	}
	return stepDone
}

// runStopped is run in other states than RTS: it flushes work requests posted in ERR.
func (qp *queuePair) runStopped() stepResult {
	if !qp.is(verbs.QPStateErr) {
		return stepDone
	}
	if !qp.sendFault() {
		return stepAgain
	}
	qp.flushSends()
	qp.notifyAnother()
	return stepDone
}

// step executes the work request at next.
func (qp *queuePair) step(pi uint16, budget *int) stepResult {
	r := &qp.req
	if !r.opened {
		bbs, syn := prm.DecodeWQE(&qp.sq, r.next, pi, &r.wqe)
		r.bbs = uint16(bbs)
		if syn != prm.SyndromeOK {
			return qp.failNext(syn)
		}
		r.opened, r.packed, r.moved = true, false, 0
	}
	w := &r.wqe
	if qp.service == verbs.QPTypeUD {
		return qp.datagram(w)
	}
	if r.inFlight > 0 && (w.Flags.Fenced() || oneSided(w.Op)) {
		return stepWait
	}
	if !r.routed && qp.toSharedTarget() && w.Op != prm.OpNOP {
		if v := qp.route(w); v != stepDone {
			return v
		}
	}
	switch w.Op {
	case prm.OpRDMAWrite, prm.OpRDMARead, prm.OpAtomicFA, prm.OpAtomicCS, prm.OpRDMAWriteImm:
		return qp.remoteMemory(w, budget)
	case prm.OpNOP:
		return qp.finish(w, 0)
	}
	if qp.service == verbs.QPTypeXRCSend {
		if v, ok := qp.deliver(w, budget); ok {
			return v
		}
	}
	return qp.message(w)
}

// oneSided reports whether the initiator executes the operation alone.
func oneSided(op prm.Opcode) bool {
	switch op {
	case prm.OpSend, prm.OpSendImm:
		return false
	}
	return true
}

// finish completes the work request at next, which has read that many bytes, and advances next.
func (qp *queuePair) finish(w *prm.WQE, read uint32) stepResult {
	r := &qp.req
	r.opened, r.routed = false, false
	r.deadline = 0
	r.next += r.bbs
	r.acked = r.next
	if w.Flags.Signaled() && !qp.complete(w.Op, w.Index, read) {
		return stepFail
	}
	return stepDone
}

// complete writes the CQE of a send work request, which has read n bytes. False if the CQ has
// overrun.
func (qp *queuePair) complete(op prm.Opcode, index uint16, n uint32) bool {
	if qp.timed != nil {
		return qp.timed.holdBack(&prm.CQE{Opcode: prm.CQEReq, UserIndex: qp.uidx, WQECounter: index,
			SendOp: op, QPN: qp.qpn, ByteCount: n})
	}
	if qp.sendCQ.pushSent(qp, op, index, n) {
		return true
	}
	qp.failOverrun()
	return false
}

// ready reports whether the link is up and the QP has a guard; if not, v is the result of the step.
func (qp *queuePair) ready() (v stepResult, ok bool) {
	l := qp.req.link
	switch l.state.Load() {
	case linkUp:
	case linkDialing:
		return qp.awaitLink(l), false
	default:
		return qp.failOnLink(l), false
	}
	if qp.req.guard == nil {
		slot, ok := l.reserveGuard()
		if !ok {
			return qp.failNext(prm.SyndromeLocalQPOp), false
		}
		qp.req.guardSlot, qp.req.guard = slot, l.mem.guard(slot)
	}
	return stepDone, true
}

// failOnLink fails the work request at next after its link has gone down. A work request to a
// member of a domain is rejected, as by handleMemberGone, which handles the messages in flight.
func (qp *queuePair) failOnLink(l *outLink) stepResult {
	end := linkEnd(l.end.Load())
	if qp.req.shared == nil || end == endBroken || qp.req.inFlight > 0 {
		return qp.failNext(prm.SyndromeRetryExceeded)
	}
	return qp.noQueue(end != endClosed)
}

// deadPeerSyndrome returns the syndrome of a work request that the kernel has rejected because the
// process of the peer is dead, before the link has gone down.
func (r *requester) deadPeerSyndrome() prm.Syndrome {
	r.died = true
	if r.shared == nil {
		return prm.SyndromeRetryExceeded
	}
	return prm.SyndromeRemoteInvalidReq
}

// failNext completes the work request at next with an error and stops the QP.
func (qp *queuePair) failNext(syn prm.Syndrome) stepResult {
	r := &qp.req
	if r.inFlight > 0 {
		// An earlier work request may still fail, with another syndrome.
		return stepWait
	}
	qp.enterError(syn, prm.SyndromeOK)
	return stepFail
}

// failWithPeer is failNext for a fault that also moves the QP of the peer to ERR.
func (qp *queuePair) failWithPeer(syn prm.Syndrome) stepResult {
	qp.enterError(syn, syn)
	return stepFail
}

// partlySent reports whether packets of the message after those in flight are in the ring: the
// peer can reject it before the last one is sent.
func (r *requester) partlySent() bool { return r.opened && r.moved > 0 }

// matchMSN returns how many messages in flight are older than msn, and whether msn is that of a
// message that can have a response.
func (r *requester) matchMSN(msn uint32) (n uint32, ok bool) {
	oldest := (r.msn - r.inFlight) & mlx5PSNMask
	n = (msn - oldest) & mlx5PSNMask
	return n, n <= r.inFlight
}
