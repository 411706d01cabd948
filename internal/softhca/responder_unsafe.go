package softhca

import (
	"unsafe"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/softhca/internal/ring"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// responder is the receiving half of a connected QP. hca.driving protects it.
type responder struct {
	msn          uint32 // number of the open message, or of the next one
	rnrSent      bool   // an RNR NAK was sent: packets before the retry are stale
	lastRaised   bool   // in ERR: EventQPLastWQEReached was raised
	userNotified bool   // a target in a shared domain, in ERR: this device's user was notified
	lostSRQ      bool   // the SRQ of message msn was destroyed while the message arrived
	open         openMessage
}

// openMessage is a message of which some packets have arrived, but not all.
type openMessage struct {
	kind  uint8      // ring.OpSend, OpWrite or OpRead; OpFiller: none is open
	len   uint64     // according to its first packet
	got   uint64     // bytes of it that have arrived
	queue *recvQueue // its receive queue
	entry recvEntry  // of a send: the receive that it fills, consumed and not completed
}

// begun reports whether a message is open.
func (m *openMessage) begun() bool { return m.kind != ring.OpFiller }

// close ends the message.
func (m *openMessage) close() { m.kind = ring.OpFiller }

// fits reports whether a packet is the next one of the message, or begins one, and is valid for its
// operation (IBTA volume 1, 9.7.4.1.2). The same message may begin again from its first packet.
func (m *openMessage) fits(pkt *ring.Packet) bool {
	first, last := pkt.Flags&ring.FlagFirst != 0, pkt.Flags&ring.FlagLast != 0
	n, length := uint64(pkt.Payload), uint64(pkt.Total)
	if m.begun() && (m.kind != pkt.Op || m.len != length || pkt.Flags&ring.FlagXRC != 0 && m.queue.srqn != pkt.Ext) {
		return false
	}
	switch pkt.Op {
	case ring.OpSend, ring.OpWrite:
		got := uint64(0)
		if !first {
			got = m.got
		}
		return length <= maxMessage && n <= length-got && last == (got+n == length) && (last || n > 0)
	case ring.OpRead, ring.OpWriteImm, ring.OpAtomicFA, ring.OpAtomicCS:
		return !m.begun() && first && last && n == 0 && length <= maxMessage
	}
	return false
}

// drainRequests handles a bounded number of packets from the request ring of a link, and reports
// whether there may be more. hca.driving is held.
func (l *inLink) drainRequests() (more bool) {
	if l.rejected {
		return false
	}
	var pkt ring.Packet
	for range drainBatch {
		if !l.finishRead() || !l.resp.Room(maxResponses*ring.MaxRecord) {
			l.flushAck()
			return l.resp.AwaitRoom()
		}
		body, ok, broken := l.req.Next(&pkt)
		if broken {
			l.reject()
			return false
		}
		if !ok {
			l.finishDrain()
			return false
		}
		l.handle(&pkt, body)
		l.hca.driving.Quiescent() // Release is the barrier
		l.req.Release()
	}
	l.finishDrain()
	return true
}

// drainRest handles the packets that a dead peer has left in the ring: at most as many as fit, as
// another process may still write to the ring. hca.driving is held.
func (l *inLink) drainRest() {
	for range ring.Len / ring.RecordAlign / drainBatch {
		if l.reading.qp != nil || !l.drainRequests() {
			return
		}
		yield()
	}
}

// maxResponses is the maximum number of packets that the device sends for one request, without read
// data: a due acknowledgement of another QP, and the response.
const maxResponses = 2

func (l *inLink) finishDrain() {
	l.flushAck()
	if l.req.RoomMade() {
		call(l.ctl, l.wakeFD, attnResponse)
	}
}

// handle handles one packet. As on a wire, it drops packets for QPs that do not exist, have another
// service or are connected to another peer; but it sends a NAK for a message of an RC QP, so that
// its sender need not wait for a timeout.
func (l *inLink) handle(pkt *ring.Packet, body unsafe.Pointer) {
	if pkt.Op == ring.OpFilled {
		l.handleNotice(pkt)
		return
	}
	qp := l.receiver(pkt)
	if pkt.Op == ring.OpDatagram {
		if qp != nil && qp.service == verbs.QPTypeUD {
			qp.receiveDatagram(l, pkt, body)
		}
		return
	}
	if qp == nil || !qp.connected() || !qp.entry.Accepts(pkt.DstQPN, pkt.SrcQPN, &l.gid) {
		if pkt.Op != ring.OpFault {
			l.sendReject(pkt, ring.OpNak, uint8(prm.SyndromeRetryExceeded))
		}
		return
	}
	if pkt.Op == ring.OpFault {
		if pkt.MSN == qp.entry.RQPSN.Load() { // else it is of a connection before a RESET
			qp.peerFault(prm.Syndrome(pkt.Status))
		}
		return
	}
	if !l.inOrder(qp, pkt) {
		return
	}
	if syn := l.execute(qp, pkt, body); syn != prm.SyndromeOK {
		l.sendReject(pkt, ring.OpNak, uint8(syn))
	}
}

// inOrder reports whether a packet belongs to the open message, or is the first one of the next.
func (l *inLink) inOrder(qp *queuePair, pkt *ring.Packet) bool {
	s := &qp.resp
	first := pkt.Flags&ring.FlagFirst != 0
	if pkt.MSN == s.msn && s.lostSRQ && !first {
		s.lostSRQ = false
		l.sendReject(pkt, ring.OpNak, uint8(qp.invalidRequest()))
		return false
	}
	if pkt.MSN != s.msn || !first && !s.open.begun() {
		if !s.rnrSent {
			l.sendReject(pkt, ring.OpNak, uint8(prm.SyndromeRetryExceeded))
		}
		return false
	}
	s.rnrSent, s.lostSRQ = false, false
	return true
}

// connected reports whether the QP receives from a single peer.
func (qp *queuePair) connected() bool {
	return qp.service == verbs.QPTypeRC || qp.service == verbs.QPTypeXRCRecv
}

// execute executes a request packet, and returns the syndrome for the requester.
func (l *inLink) execute(qp *queuePair, pkt *ring.Packet, body unsafe.Pointer) prm.Syndrome {
	m := &qp.resp.open
	if pkt.Flags&ring.FlagXRC != 0 != (qp.domain != nil) || !m.fits(pkt) {
		return qp.invalidRequest()
	}
	if !m.begun() {
		if m.queue = qp.queueOf(pkt); m.queue == nil {
			return qp.invalidRequest() // IBTA volume 1, annex 14: the XRCETH is not valid
		}
	}
	if pkt.Flags&ring.FlagFirst != 0 {
		m.len, m.got = uint64(pkt.Total), 0
	}
	switch pkt.Op {
	case ring.OpSend:
		return l.receive(qp, pkt, body)
	case ring.OpWrite:
		return l.write(qp, pkt, body)
	case ring.OpWriteImm:
		return l.immediate(qp, pkt)
	case ring.OpRead:
		return l.read(qp, pkt)
	case ring.OpAtomicFA, ring.OpAtomicCS:
		return l.atomic(qp, pkt)
	}
	return qp.invalidRequest()
}

// invalidRequest stops the QP for a request that no well-behaved peer sends.
func (qp *queuePair) invalidRequest() prm.Syndrome {
	qp.peerFault(prm.SyndromeRemoteInvalidReq)
	return prm.SyndromeRemoteInvalidReq
}

// receive scatters a packet of a send to the receive that the message has consumed.
func (l *inLink) receive(qp *queuePair, pkt *ring.Packet, body unsafe.Pointer) prm.Syndrome {
	m := &qp.resp.open
	if !m.begun() {
		if ok, syn := l.consume(qp, pkt); !ok {
			return syn
		}
		m.kind = ring.OpSend
	}
	n := uint64(pkt.Payload)
	if m.got+n > m.entry.total {
		return qp.failReceive(prm.SyndromeLocalLength, prm.SyndromeRemoteInvalidReq)
	}
	k := walk{qp: qp, sges: m.entry.sge[:m.entry.nsge], need: verbs.AccessLocalWrite, pdn: m.queue.pdn}
	if !k.scatter(body, m.got, n) {
		return qp.failReceive(prm.SyndromeLocalProt, prm.SyndromeRemoteOp)
	}
	m.got += n
	if pkt.Flags&ring.FlagLast != 0 {
		op := prm.CQERespSend
		if pkt.Flags&ring.FlagImm != 0 {
			op = prm.CQERespSendImm
		}
		l.completeReceive(qp, pkt, op)
	}
	return prm.SyndromeOK
}

// consume consumes a receive for the message of pkt. If there is none, it sends an RNR NAK and
// returns false.
func (l *inLink) consume(qp *queuePair, pkt *ring.Packet) (ok bool, syn prm.Syndrome) {
	s := &qp.resp
	timer := qp.attr.MinRNRTimer
	if q := s.open.queue; q.xrc.window == nil {
		ok, syn = q.pop(&s.open.entry)
	} else {
		var busy bool
		if ok, busy, syn = q.popShown(&s.open.entry); busy {
			timer = ring.RNRBusy
		}
	}
	if !ok {
		s.open.close()
		s.rnrSent = true
		l.sendReject(pkt, ring.OpRNR, timer)
		return false, prm.SyndromeOK
	}
	if syn != prm.SyndromeOK {
		return false, qp.failReceive(syn, prm.SyndromeRemoteOp)
	}
	return true, prm.SyndromeOK
}

// completeReceive completes the consumed receive and acknowledges the message.
func (l *inLink) completeReceive(qp *queuePair, pkt *ring.Packet, op prm.CQEOpcode) {
	m := &qp.resp.open
	cq, uidx := m.queue.cqOf(qp)
	e := prm.CQE{Opcode: op, Solicited: pkt.Flags&ring.FlagSolicited != 0, UserIndex: uidx,
		WQECounter: m.entry.index, QPN: qp.qpn, ByteCount: uint32(m.len), Imm: pkt.Imm, SrcQP: pkt.SrcQPN}
	if !cq.push(&e) {
		qp.failOverrun()
	}
	l.acknowledge(qp, pkt)
}

// acknowledge ends a message. Its acknowledgement is due and may be sent later, with others.
func (l *inLink) acknowledge(qp *queuePair, pkt *ring.Packet) {
	qp.resp.endMessage()
	if l.ackDue && l.ack.DstQPN != pkt.SrcQPN {
		l.flushAck()
	}
	l.ackDue = true
	l.ack = ring.Packet{DstQPN: pkt.SrcQPN, MSN: pkt.MSN}
}

// endMessage ends message msn.
func (s *responder) endMessage() {
	s.open.close()
	s.msn = (s.msn + 1) & mlx5PSNMask
}

// failReceive completes the consumed receive with the syndrome local, and stops the QP. It returns
// remote, the syndrome for the requester.
func (qp *queuePair) failReceive(local, remote prm.Syndrome) prm.Syndrome {
	m := &qp.resp.open
	m.close()
	qp.recvError(m.queue, &m.entry, local)
	qp.stop()
	if qp.domain != nil { // the user of the target does not see the completion of the SRQ
		qp.raiseFault(verbs.EventQPReqErr)
	}
	return remote
}

// stop moves the QP to ERR for a fault of its responder.
func (qp *queuePair) stop() {
	qp.exec.Lock()
	qp.enterError(prm.SyndromeWRFlush, prm.SyndromeOK)
	qp.exec.Release()
}

// peerFault stops the QP after a rejected request of the peer, and raises the event for syn.
func (qp *queuePair) peerFault(syn prm.Syndrome) {
	qp.stop()
	switch syn {
	case prm.SyndromeRemoteAccess:
		qp.raiseFault(verbs.EventQPAccessErr)
	case prm.SyndromeRemoteInvalidReq:
		qp.raiseFault(verbs.EventQPReqErr)
	default:
		qp.raiseFault(qp.fatal())
	}
}

// checkAccess checks an access that the responder executes, and returns the memory.
func (qp *queuePair) checkAccess(pkt *ring.Packet, off, n uint64, need verbs.Access) (unsafe.Pointer, prm.Syndrome) {
	if qp.attr.AccessFlags&need != need {
		return nil, qp.invalidRequest()
	}
	p := qp.hca.regions.find(pkt.RKey, pkt.RAddr+off, n, qp.pdnOf(pkt), need)
	if p == nil || pkt.RAddr+off < off {
		qp.peerFault(prm.SyndromeRemoteAccess)
		return nil, prm.SyndromeRemoteAccess
	}
	return p, prm.SyndromeOK
}

// pdnOf returns the protection domain of the memory of a request: with XRC that of the SRQ.
func (qp *queuePair) pdnOf(pkt *ring.Packet) uint32 {
	if qp.domain == nil {
		return qp.pdn
	}
	if q := qp.queueOf(pkt); q != nil {
		return q.pdn
	}
	return 0 // no region has this domain
}

// write stores a packet of an RDMA write.
func (l *inLink) write(qp *queuePair, pkt *ring.Packet, body unsafe.Pointer) prm.Syndrome {
	m := &qp.resp.open
	m.kind = ring.OpWrite
	if n := uint64(pkt.Payload); n > 0 {
		p, syn := qp.checkAccess(pkt, m.got, n, verbs.AccessRemoteWrite)
		if syn != prm.SyndromeOK {
			return syn
		}
		move(p, body, n)
		m.got += n
	}
	switch {
	case pkt.Flags&ring.FlagLast == 0:
	case pkt.Flags&ring.FlagImm != 0:
		return l.immediate(qp, pkt)
	default:
		l.acknowledge(qp, pkt)
	}
	return prm.SyndromeOK
}

// immediate delivers the immediate of an RDMA write, which consumes a receive.
func (l *inLink) immediate(qp *queuePair, pkt *ring.Packet) prm.Syndrome {
	if ok, syn := l.consume(qp, pkt); !ok {
		return syn
	}
	l.completeReceive(qp, pkt, prm.CQERespWrImm)
	return prm.SyndromeOK
}

// atomic applies an atomic to memory that the requester does not map.
func (l *inLink) atomic(qp *queuePair, pkt *ring.Packet) prm.Syndrome {
	if pkt.RAddr%prm.AtomicOperandLen != 0 {
		return qp.invalidRequest()
	}
	p, syn := qp.checkAccess(pkt, 0, prm.AtomicOperandLen, verbs.AccessRemoteAtomic)
	if syn != prm.SyndromeOK {
		return syn
	}
	op := prm.OpAtomicFA
	if pkt.Op == ring.OpAtomicCS {
		op = prm.OpAtomicCS
	}
	old := applyAtomic(p, op, pkt.SwapAdd, pkt.Compare)
	l.flushAck()
	qp.resp.endMessage()
	if a := l.resp.Reserve(0); a != nil {
		a.Op, a.Flags, a.DstQPN, a.MSN, a.SwapAdd = ring.OpAtomicOK, ring.FlagLast, pkt.SrcQPN, pkt.MSN, old
		l.reply(a)
	}
	return prm.SyndromeOK
}

// sendReject sends a negative response, after the acknowledgements that precede it.
func (l *inLink) sendReject(pkt *ring.Packet, op, status uint8) {
	l.flushAck()
	if a := l.resp.Reserve(0); a != nil {
		a.Op, a.Status, a.DstQPN, a.MSN = op, status, pkt.SrcQPN, pkt.MSN
		l.reply(a)
	}
}

// flushAck sends the acknowledgement that is due.
func (l *inLink) flushAck() {
	if !l.ackDue {
		return
	}
	l.ackDue = false
	if a := l.resp.Reserve(0); a != nil {
		a.Op, a.DstQPN, a.MSN = ring.OpAck, l.ack.DstQPN, l.ack.MSN
		l.reply(a)
	}
}

func (l *inLink) reply(a *ring.Packet) {
	l.resp.Publish(a)
	call(l.ctl, l.wakeFD, attnResponse)
}
