package softhca

import (
	"unsafe"

	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// responder is the receiving half of an RC QP. hca.driving protects it.
type responder struct {
	msn     uint32 // the message that must come next
	inside  bool   // packets of it have come
	refused bool   // an RNR NAK was sent: what comes before its retry is stale
	got     uint64 // bytes of it
	filling bool   // entry has been consumed for it, and has no completion yet
	over    bool   // in ERR: the last receive of an SRQ has been completed
	entry   recvEntry
}

// drainRequests handles what peers have sent on a link, a bounded number of
// packets. hca.driving is held. It reports whether there may be more.
func (l *inLink) drainRequests() (more bool) {
	var pkt packet
	for range drainBatch {
		if !l.finishRead() || !l.resp.room(maxAnswers*maxRecord) {
			l.flushAck()
			return l.resp.awaitRoom()
		}
		body, ok, broken := l.req.next(&pkt)
		if broken {
			l.hca.dropInbound(l)
			return false
		}
		if !ok {
			l.endDrain()
			return false
		}
		l.handle(&pkt, body)
		l.req.release()
	}
	l.endDrain()
	return true
}

// maxAnswers is how many packets one request makes at the most, apart from read
// data: the acknowledgement of another QP, and its own.
const maxAnswers = 2

func (l *inLink) endDrain() {
	l.flushAck()
	if l.req.roomMade() {
		call(l.ctl, l.wakeFD, attnResponse)
	}
}

// handle takes one packet. Packets for QPs that do not exist, are of another
// service or belong to another peer are dropped, as on a wire; a message of an RC
// QP is answered, so that its sender need not wait for a timeout.
func (l *inLink) handle(pkt *packet, body unsafe.Pointer) {
	qp := l.hca.qps.find(pkt.dstQPN)
	if pkt.op == pktDatagram {
		if qp != nil && qp.service == verbs.QPTypeUD {
			qp.receiveDatagram(l, pkt, body)
		}
		return
	}
	if qp == nil || qp.service != verbs.QPTypeRC || !qp.entry.accepts(pkt.dstQPN, pkt.srcQPN, &l.gid) {
		if pkt.op != pktFault {
			l.answer(pkt, pktNak, uint8(mlx5.SyndromeRetryExceeded))
		}
		return
	}
	if pkt.op == pktFault {
		qp.peerFault(mlx5.Syndrome(pkt.status))
		return
	}
	if !l.inOrder(qp, pkt) {
		return
	}
	if syn := l.execute(qp, pkt, body); syn != mlx5.SyndromeOK {
		l.answer(pkt, pktNak, uint8(syn))
	}
}

// inOrder checks a packet's place in its QP's order.
func (l *inLink) inOrder(qp *queuePair, pkt *packet) bool {
	s := &qp.resp
	first := pkt.flags&flagFirst != 0
	if pkt.msn != s.msn || (!first && !s.inside) {
		if !s.refused {
			l.answer(pkt, pktNak, uint8(mlx5.SyndromeRetryExceeded))
		}
		return false
	}
	if first {
		s.inside, s.refused, s.got = true, false, 0
	}
	return true
}

// execute does what a packet asks. The syndrome is what the requester is told.
func (l *inLink) execute(qp *queuePair, pkt *packet, body unsafe.Pointer) mlx5.Syndrome {
	switch pkt.op {
	case pktSend:
		return l.receive(qp, pkt, body)
	case pktWrite:
		return l.write(qp, pkt, body)
	case pktWriteImm:
		return l.immediate(qp, pkt)
	case pktRead:
		return l.read(qp, pkt)
	case pktAtomicFA, pktAtomicCS:
		return l.atomic(qp, pkt)
	}
	return mlx5.SyndromeRemoteInvalidReq
}

// receive places a packet of a send into the receive buffer.
func (l *inLink) receive(qp *queuePair, pkt *packet, body unsafe.Pointer) mlx5.Syndrome {
	s := &qp.resp
	if pkt.flags&flagFirst != 0 {
		if ok, syn := l.consume(qp, pkt); !ok {
			return syn
		}
	}
	n := uint64(pkt.payload)
	if s.got+n > s.entry.total {
		return qp.receiveFailed(mlx5.SyndromeLocalLength, mlx5.SyndromeRemoteInvalidReq)
	}
	k := walk{qp: qp, sges: s.entry.sge[:s.entry.nsge], need: verbs.AccessLocalWrite, pdn: qp.rq.pdn}
	if !k.scatter(body, s.got, n) {
		return qp.receiveFailed(mlx5.SyndromeLocalProt, mlx5.SyndromeRemoteOp)
	}
	s.got += n
	if pkt.flags&flagLast != 0 {
		op := mlx5.CQERespSend
		if pkt.flags&flagImm != 0 {
			op = mlx5.CQERespSendImm
		}
		l.delivered(qp, pkt, op, uint32(s.got))
	}
	return mlx5.SyndromeOK
}

// consume takes a receive for the message that pkt begins, or asks the requester
// to come back.
func (l *inLink) consume(qp *queuePair, pkt *packet) (ok bool, syn mlx5.Syndrome) {
	s := &qp.resp
	if s.filling { // the message begins again: a requester that was reset in the middle
		return true, mlx5.SyndromeOK
	}
	ok, syn = qp.rq.take(&s.entry)
	if !ok {
		s.inside, s.refused = false, true
		l.answer(pkt, pktRNR, qp.attr.MinRNRTimer)
		return false, mlx5.SyndromeOK
	}
	if syn != mlx5.SyndromeOK {
		return false, qp.receiveFailed(syn, mlx5.SyndromeRemoteOp)
	}
	s.filling = true
	return true, mlx5.SyndromeOK
}

// delivered completes a receive and acknowledges the message.
func (l *inLink) delivered(qp *queuePair, pkt *packet, op mlx5.CQEOpcode, n uint32) {
	e := mlx5.CQE{Opcode: op, Solicited: pkt.flags&flagSolicited != 0, UserIndex: qp.rq.uidx,
		WQECounter: qp.resp.entry.index, QPN: qp.qpn, ByteCount: n, Imm: pkt.imm, SrcQP: pkt.srcQPN}
	qp.resp.filling = false
	if !qp.recvCQ.push(&e) {
		qp.lost()
	}
	l.accepted(qp, pkt)
}

// accepted ends a message and acknowledges it, soon.
func (l *inLink) accepted(qp *queuePair, pkt *packet) {
	qp.resp.inside = false
	qp.resp.msn = (pkt.msn + 1) & mlx5PSNMask
	if l.ackOwed && l.ack.dstQPN != pkt.srcQPN {
		l.flushAck()
	}
	l.ackOwed = true
	l.ack = packet{dstQPN: pkt.srcQPN, msn: pkt.msn}
}

// receiveFailed ends a receive with an error here, and stops the QP. It returns
// what the requester is told.
func (qp *queuePair) receiveFailed(here, there mlx5.Syndrome) mlx5.Syndrome {
	qp.resp.filling = false
	qp.recvError(&qp.resp.entry, here)
	qp.stop()
	return there
}

// stop moves the QP to ERR for a fault of its responder.
func (qp *queuePair) stop() {
	qp.exec.lock()
	qp.enterError(mlx5.SyndromeWRFlush, mlx5.SyndromeOK)
	qp.exec.release()
}

// peerFault is the notice that the peer was refused by this QP.
func (qp *queuePair) peerFault(syn mlx5.Syndrome) {
	qp.stop()
	switch syn {
	case mlx5.SyndromeRemoteAccess:
		qp.hca.raise(verbs.EventQPAccessErr, qp.qpn)
	case mlx5.SyndromeRemoteInvalidReq:
		qp.hca.raise(verbs.EventQPReqErr, qp.qpn)
	default:
		qp.hca.raise(verbs.EventQPFatal, qp.qpn)
	}
}

// target checks an access that the requester could not make itself.
func (qp *queuePair) target(pkt *packet, off, n uint64, need verbs.Access) (unsafe.Pointer, mlx5.Syndrome) {
	if qp.attr.AccessFlags&need != need {
		qp.peerFault(mlx5.SyndromeRemoteInvalidReq)
		return nil, mlx5.SyndromeRemoteInvalidReq
	}
	p := qp.hca.regions.find(pkt.rkey, pkt.raddr+off, n, qp.pdn, need)
	if p == nil || pkt.raddr+off < off {
		qp.peerFault(mlx5.SyndromeRemoteAccess)
		return nil, mlx5.SyndromeRemoteAccess
	}
	return p, mlx5.SyndromeOK
}

// write stores a packet of an RDMA write.
func (l *inLink) write(qp *queuePair, pkt *packet, body unsafe.Pointer) mlx5.Syndrome {
	s := &qp.resp
	if n := uint64(pkt.payload); n > 0 {
		p, syn := qp.target(pkt, s.got, n, verbs.AccessRemoteWrite)
		if syn != mlx5.SyndromeOK {
			return syn
		}
		move(p, body, n)
		s.got += n
	}
	switch {
	case pkt.flags&flagLast == 0:
	case pkt.flags&flagImm != 0:
		return l.immediate(qp, pkt)
	default:
		l.accepted(qp, pkt)
	}
	return mlx5.SyndromeOK
}

// immediate delivers the immediate of an RDMA write, which consumes a receive.
func (l *inLink) immediate(qp *queuePair, pkt *packet) mlx5.Syndrome {
	if ok, syn := l.consume(qp, pkt); !ok {
		return syn
	}
	l.delivered(qp, pkt, mlx5.CQERespWrImm, pkt.dmaLen)
	return mlx5.SyndromeOK
}

// atomic applies an atomic to memory that the requester does not map.
func (l *inLink) atomic(qp *queuePair, pkt *packet) mlx5.Syndrome {
	if pkt.raddr%mlx5.AtomicOperandLen != 0 {
		qp.peerFault(mlx5.SyndromeRemoteInvalidReq)
		return mlx5.SyndromeRemoteInvalidReq
	}
	p, syn := qp.target(pkt, 0, mlx5.AtomicOperandLen, verbs.AccessRemoteAtomic)
	if syn != mlx5.SyndromeOK {
		return syn
	}
	op := mlx5.OpAtomicFA
	if pkt.op == pktAtomicCS {
		op = mlx5.OpAtomicCS
	}
	old := applyAtomic(p, op, pkt.swapAdd, pkt.compare)
	l.flushAck()
	qp.resp.inside = false
	qp.resp.msn = (pkt.msn + 1) & mlx5PSNMask
	if a := l.resp.reserve(0); a != nil {
		a.op, a.flags, a.dstQPN, a.msn, a.swapAdd = pktAtomicOK, flagLast, pkt.srcQPN, pkt.msn, old
		l.reply(a)
	}
	return mlx5.SyndromeOK
}

// answer sends a refusal, after the acknowledgements that precede it.
func (l *inLink) answer(pkt *packet, op, status uint8) {
	l.flushAck()
	if a := l.resp.reserve(0); a != nil {
		a.op, a.status, a.dstQPN, a.msn = op, status, pkt.srcQPN, pkt.msn
		l.reply(a)
	}
}

// flushAck sends the acknowledgement that is owed.
func (l *inLink) flushAck() {
	if !l.ackOwed {
		return
	}
	l.ackOwed = false
	if a := l.resp.reserve(0); a != nil {
		a.op, a.dstQPN, a.msn = pktAck, l.ack.dstQPN, l.ack.msn
		l.reply(a)
	}
}

func (l *inLink) reply(a *packet) {
	l.resp.publish(a)
	call(l.ctl, l.wakeFD, attnResponse)
}
