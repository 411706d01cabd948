package softhca

import (
	"time"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/softhca/internal/ring"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// message sends the work request at next through the request ring, packet by packet. It returns
// stepDone when the last packet is in the ring.
func (qp *queuePair) message(w *prm.WQE) stepResult {
	r := &qp.req
	if v, ok := qp.ready(); !ok {
		return v
	}
	if !qp.peerEntry().Accepts(qp.attr.DestQPN, qp.qpn, &qp.hca.gidWords) {
		return qp.awaitPeer()
	}
	var k walk
	k.begin(qp, w, localNeed(w.Op))
	if r.moved == 0 {
		if w.Len > maxMessage {
			return qp.failNext(prm.SyndromeLocalLength)
		}
		if !k.valid() {
			return qp.failNext(prm.SyndromeLocalProt)
		}
	}
	f := form(w.Op, r.packed)
	for {
		last, v := qp.sendPacket(w, &k, f)
		if v != stepDone {
			return v
		}
		if last {
			break
		}
	}
	r.opened, r.routed = false, false
	r.deadline = 0
	r.next += r.bbs
	r.msn = (r.msn + 1) & mlx5PSNMask
	r.inFlight++
	return stepDone
}

// packetForm is the form of an operation in the ring.
type packetForm struct {
	op      uint8
	flags   uint8
	payload bool // packets contain the bytes of the message
}

func form(op prm.Opcode, packed bool) packetForm {
	switch op {
	case prm.OpSend:
		return packetForm{op: ring.OpSend, payload: true}
	case prm.OpSendImm:
		return packetForm{op: ring.OpSend, flags: ring.FlagImm, payload: true}
	case prm.OpRDMARead:
		return packetForm{op: ring.OpRead}
	case prm.OpAtomicFA:
		return packetForm{op: ring.OpAtomicFA}
	case prm.OpAtomicCS:
		return packetForm{op: ring.OpAtomicCS}
	case prm.OpRDMAWriteImm:
		if !packed {
			return packetForm{op: ring.OpWriteImm, flags: ring.FlagImm}
		}
		return packetForm{op: ring.OpWrite, flags: ring.FlagImm, payload: true}
	}
	return packetForm{op: ring.OpWrite, payload: true}
}

// sendPacket puts the next packet of a message into the ring.
func (qp *queuePair) sendPacket(w *prm.WQE, k *walk, f packetForm) (last bool, v stepResult) {
	r := &qp.req
	l := r.link
	n, first, last := qp.nextPacket(w, f.payload)
	qp.exec.Quiescent() // Lock is the barrier
	l.txLock.Lock()
	pkt := l.req.Reserve(int(n))
	if pkt == nil {
		v := qp.awaitRoom(l)
		l.txLock.Unlock()
		return false, v
	}
	pkt.Op, pkt.SrcQPN, pkt.DstQPN, pkt.MSN = f.op, qp.qpn, qp.attr.DestQPN, r.msn
	pkt.Total, pkt.RAddr, pkt.RKey = uint32(w.Len), w.RAddr, w.RKey
	pkt.SwapAdd, pkt.Compare = w.SwapOrAdd, w.Compare
	if qp.service == verbs.QPTypeXRCSend {
		pkt.Ext = w.SRQN
		pkt.Flags |= ring.FlagXRC
	}
	if first {
		pkt.Flags |= ring.FlagFirst
	}
	if last {
		setLast(pkt, w, f.flags)
	}
	if n > 0 && !k.gather(pkt.Body(), r.moved, n) {
		pkt.Op, pkt.Payload = ring.OpFiller, 0 // the region was deregistered during the send
		l.req.Publish(pkt)
		l.txLock.Unlock()
		return false, qp.failWithPeer(prm.SyndromeLocalProt)
	}
	l.req.Publish(pkt)
	l.txLock.Unlock()
	r.moved += n
	call(l.ctl, l.wakeFD, attnRequest)
	return last, stepDone
}

// nextPacket returns the payload length of the next packet of a message, and whether it is the first
// and the last one.
func (qp *queuePair) nextPacket(w *prm.WQE, payload bool) (n uint64, first, last bool) {
	if !payload {
		return 0, true, true
	}
	moved := qp.req.moved
	n = min(w.Len-moved, uint64(qp.mtu()))
	return n, moved == 0, moved+n == w.Len
}

// setLast makes a packet the last of a message.
func setLast(pkt *ring.Packet, w *prm.WQE, flags uint8) {
	pkt.Flags |= ring.FlagLast | flags
	pkt.Imm = w.Imm
	if w.Flags.Solicited() {
		pkt.Flags |= ring.FlagSolicited
	}
}

func (qp *queuePair) mtu() int {
	if n := qp.attr.PathMTU.Bytes(); n > 0 {
		return n
	}
	return ring.MaxPayload
}

// datagram sends a UD work request. It completes when it is in the ring, or when the destination is
// not reached.
func (qp *queuePair) datagram(w *prm.WQE) stepResult {
	if w.Op != prm.OpSend && w.Op != prm.OpSendImm {
		if w.Op == prm.OpNOP {
			return qp.finish(w, 0)
		}
		return qp.failNext(prm.SyndromeLocalQPOp)
	}
	if w.Len > ring.MaxPayload {
		return qp.failNext(prm.SyndromeLocalLength)
	}
	var k walk
	k.begin(qp, w, 0)
	if !k.valid() {
		return qp.failNext(prm.SyndromeLocalProt)
	}
	l, err := qp.udLink(w.AV.DGID)
	if err != nil {
		return qp.finish(w, 0)
	}
	switch l.state.Load() {
	case linkDialing:
		if now := nanotime(); now-l.started < udTimeout.Nanoseconds() {
			return qp.sleepUntil(now + peerPoll)
		}
		return qp.finish(w, 0)
	case linkDown:
		qp.undelivered(l)
		return qp.finish(w, 0)
	}
	if v := qp.sendDatagram(w, &k, l); v != stepDone {
		return v
	}
	return qp.finish(w, 0)
}

// undelivered raises an event if the destination of a datagram does not exist.
func (qp *queuePair) undelivered(l *outLink) {
	if s := qp.hca.sink.Load(); s != nil && linkEnd(l.end.Load()) != endBusy {
		(*s).Unreachable(qp.qpn, l.gid)
	}
}

// udTimeout is the time that datagrams wait for a link that is being dialed, or for a peer that
// consumes nothing from its full ring, before they are dropped. A running peer needs much less, also
// on a busy machine; and a peer that does not run delays the datagrams to others no longer than
// this.
const udTimeout = 100 * time.Millisecond

// awaitDatagramRoom is awaitRoom for a datagram. If the peer does not run, it returns stepDone, and
// the datagram is dropped, as datagrams to other peers are behind it. l.txLock is held.
func (qp *queuePair) awaitDatagramRoom(l *outLink) (v stepResult, until int64) {
	if l.self || l.state.Load() == linkDown {
		return qp.awaitRoom(l), 0
	}
	now := nanotime()
	if l.fullSince == 0 || l.fullAt != l.req.Head {
		l.fullSince, l.fullAt = now, l.req.Head
	}
	if now-l.fullSince < udTimeout.Nanoseconds() {
		return stepWait, now + peerPoll
	}
	return stepDone, 0
}

func (qp *queuePair) sendDatagram(w *prm.WQE, k *walk, l *outLink) stepResult {
	qp.exec.Quiescent() // Lock is the barrier
	l.txLock.Lock()
	pkt := l.req.Reserve(int(w.Len))
	if pkt == nil {
		v, until := qp.awaitDatagramRoom(l)
		l.txLock.Unlock()
		if until != 0 {
			return qp.sleepUntil(until)
		}
		return v
	}
	pkt.Op, pkt.Flags, pkt.SrcQPN, pkt.DstQPN = ring.OpDatagram, ring.FlagFirst|ring.FlagLast, qp.qpn, w.AV.QPN
	pkt.Ext, pkt.Total = qp.wireQKey(w.AV.QKey), uint32(w.Len)
	if w.Op == prm.OpSendImm {
		pkt.Flags |= ring.FlagImm
		pkt.Imm = w.Imm
	}
	if w.Flags.Solicited() {
		pkt.Flags |= ring.FlagSolicited
	}
	if !k.gather(pkt.Body(), 0, w.Len) {
		pkt.Op = ring.OpFiller
	}
	l.req.Publish(pkt)
	l.txLock.Unlock()
	call(l.ctl, l.wakeFD, attnRequest)
	return stepDone
}

// wireQKey returns the Q_Key of a datagram: that of the QP if the one of the work request has the
// top bit set (IBTA volume 1, 10.2.5).
func (qp *queuePair) wireQKey(q uint32) uint32 {
	if q&(1<<31) != 0 {
		return qp.attr.QKey
	}
	return q
}
