package softhca

import (
	"unsafe"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/softhca/internal/ring"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// drainResponses handles a bounded number of packets from the response ring of a link, and reports
// whether there may be more. hca.driving is held.
func (l *outLink) drainResponses() (more bool) {
	var pkt ring.Packet
	for range drainBatch {
		body, ok, broken := l.resp.Next(&pkt)
		if broken {
			l.reject()
			return false
		}
		if !ok {
			l.afterDrain()
			return false
		}
		if qp := l.hca.qps.find(pkt.DstQPN); qp != nil {
			l.hca.driving.Quiescent() // Lock is the barrier
			qp.exec.Lock()
			if qp.req.link == l && qp.is(verbs.QPStateRTS) {
				qp.handleResponse(&pkt, body)
			}
			qp.exec.Release()
		}
		l.resp.Release()
	}
	l.afterDrain()
	return true
}

// drainBatch is the number of packets of a ring that are handled before the next ring.
const drainBatch = 64

// afterDrain notifies the peer of room in the response ring, and schedules the QPs that waited for
// the peer.
func (l *outLink) afterDrain() {
	if l.resp.RoomMade() {
		call(l.ctl, l.wakeFD, attnRequest)
	}
	l.unblock()
}

// handleResponse handles one response. If the response is not valid for the request (IBTA volume 1,
// 9.7.5), the QP stops: the peer is untrusted. exec is held.
func (qp *queuePair) handleResponse(pkt *ring.Packet, body unsafe.Pointer) {
	r := &qp.req
	n, ok := r.matchMSN(pkt.MSN)
	if !ok || n == r.inFlight && !r.partlySent() {
		return // not in flight: the response to an abandoned message
	}
	if !qp.retire(n) {
		return
	}
	if r.inFlight > 0 {
		qp.completeWith(qp.oldest(), pkt, body)
	} else {
		qp.completeWith(&r.wqe, pkt, body)
	}
}

// completeWith handles the response to w: the oldest message in flight, or, if there is none, the
// partly sent one.
func (qp *queuePair) completeWith(w *prm.WQE, pkt *ring.Packet, body unsafe.Pointer) {
	sent := qp.req.inFlight > 0
	switch {
	case pkt.Op == ring.OpNak:
		qp.enterError(nakSyndrome(pkt.Status), prm.SyndromeOK)
	case pkt.Op == ring.OpRNR && consumesReceive(w.Op):
		qp.notReady(w, pkt.Status)
		return
	case pkt.Op == ring.OpAck && sent:
		qp.retire(1)
	case pkt.Op == ring.OpReadData && sent && w.Op == prm.OpRDMARead:
		qp.storeRead(w, pkt, body)
	case pkt.Op == ring.OpAtomicOK && sent && isAtomic(w.Op):
		qp.storeAtomic(w, pkt)
	default:
		qp.enterError(prm.SyndromeBadResp, prm.SyndromeOK)
	}
	qp.hca.schedule(qp)
}

// nakSyndrome returns the syndrome of a NAK; SyndromeBadResp if no responder sends that status.
func nakSyndrome(status uint8) prm.Syndrome {
	switch s := prm.Syndrome(status); s {
	case prm.SyndromeRemoteInvalidReq, prm.SyndromeRemoteAccess, prm.SyndromeRemoteOp, prm.SyndromeRetryExceeded:
		return s
	}
	return prm.SyndromeBadResp
}

func isAtomic(op prm.Opcode) bool { return op == prm.OpAtomicFA || op == prm.OpAtomicCS }

// returnsData reports whether the response to an operation is data, and not an acknowledgement.
func returnsData(op prm.Opcode) bool { return op == prm.OpRDMARead || isAtomic(op) }

// consumesReceive reports whether an operation consumes a receive of the peer.
func consumesReceive(op prm.Opcode) bool {
	return op == prm.OpSend || op == prm.OpSendImm || op == prm.OpRDMAWriteImm
}

// retire completes the n oldest messages in flight, which have been acknowledged. False if the QP
// has stopped: also for a message that an acknowledgement without data cannot complete.
func (qp *queuePair) retire(n uint32) bool {
	for range n {
		w := qp.oldest()
		if returnsData(w.Op) {
			qp.enterError(prm.SyndromeBadResp, prm.SyndromeOK)
			return false
		}
		if !qp.retireOldest(w, 0) {
			return false
		}
	}
	return true
}

// retireOldest completes w, the oldest message in flight, which has read n bytes. False if the QP
// has stopped.
func (qp *queuePair) retireOldest(w *prm.WQE, n uint32) bool {
	r := &qp.req
	r.acked += uint16(prm.SkipWQE(&qp.sq, r.acked, r.next))
	r.inFlight--
	r.read = 0
	qp.progressed()
	return !w.Flags.Signaled() || qp.complete(w.Op, w.Index, n)
}

// oldest decodes the oldest work request in flight into scratch space of the device, which driving
// protects. Decoding succeeds, as it did before the message was sent.
func (qp *queuePair) oldest() *prm.WQE {
	w := &qp.hca.scratch
	prm.DecodeWQE(&qp.sq, qp.req.acked, qp.req.next, w)
	return w
}

// progressed resets the counters of consecutive failures.
func (qp *queuePair) progressed() {
	qp.req.rnrLeft = qp.attr.RNRRetry
	qp.req.deadline, qp.req.busy = 0, 0
}

// notReady rewinds the send queue to w, the oldest message in flight, which found no receive.
func (qp *queuePair) notReady(w *prm.WQE, timer uint8) {
	r := &qp.req
	srqn, busy := w.SRQN, timer == ring.RNRBusy
	switch {
	case busy:
	case r.rnrLeft == 0:
		qp.enterError(prm.SyndromeRNRExceeded, prm.SyndromeOK)
		return
	case r.rnrLeft != verbs.RNRForever:
		r.rnrLeft--
	}
	r.msn = (r.msn - r.inFlight) & mlx5PSNMask
	r.inFlight, r.read = 0, 0
	r.next = r.acked
	r.opened, r.routed = false, r.shared != nil // all messages in flight had the same path
	switch {
	case busy:
		r.holdTill = qp.hca.clock() + r.busyDelay()
	case qp.service == verbs.QPTypeXRCSend && r.rnrLeft == verbs.RNRForever && qp.timed == nil && !r.link.claims.None():
		qp.starve(srqn)
		return
	default:
		r.holdTill = qp.hca.clock() + rnrDelay(timer)
	}
	qp.sleepUntil(r.holdTill)
}

// storeRead stores the next data packet of a read through the ring. The last packet must complete
// the read.
func (qp *queuePair) storeRead(w *prm.WQE, pkt *ring.Packet, body unsafe.Pointer) {
	r := &qp.req
	n := uint64(pkt.Payload)
	last := pkt.Flags&ring.FlagLast != 0
	if pkt.RAddr != r.read || n > w.Len-r.read || last != (n == w.Len-r.read) || n == 0 && !last {
		qp.enterError(prm.SyndromeBadResp, prm.SyndromeOK)
		return
	}
	if qp.store(w, body, r.read, n) {
		r.read += n
		if last {
			qp.retireOldest(w, uint32(w.Len))
		}
	}
}

// storeAtomic stores the result of an atomic through the ring.
func (qp *queuePair) storeAtomic(w *prm.WQE, pkt *ring.Packet) {
	if qp.store(w, unsafe.Pointer(&pkt.SwapAdd), 0, prm.AtomicOperandLen) {
		qp.retireOldest(w, uint32(w.Len))
	}
}

// store stores n bytes at offset off of the buffers of w. False if they are not accessible, which
// stops the QP.
func (qp *queuePair) store(w *prm.WQE, src unsafe.Pointer, off, n uint64) bool {
	var k walk
	k.begin(qp, w, verbs.AccessLocalWrite)
	if k.scatter(src, off, n) {
		return true
	}
	qp.enterError(prm.SyndromeLocalProt, prm.SyndromeLocalProt)
	return false
}

// rnrMicros is the delay for each code of the RNR NAK timer (IBTA volume 1,
// table 45).
var rnrMicros = [32]int64{
	655360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920,
	2560, 3840, 5120, 7680, 10240, 15360, 20480, 30720, 40960, 61440, 81920, 122880,
	163840, 245760, 327680, 491520,
}

func rnrDelay(code uint8) int64 { return rnrMicros[code%32] * 1000 }
