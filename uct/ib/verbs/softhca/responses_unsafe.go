package softhca

import (
	"unsafe"

	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// drainResponses handles what has come back on a link, a bounded number of
// packets. hca.driving is held. It reports whether there may be more.
func (l *outLink) drainResponses() (more bool) {
	var pkt packet
	for range drainBatch {
		body, ok, broken := l.resp.next(&pkt)
		if broken {
			l.hca.dropLink(l)
			return false
		}
		if !ok {
			l.afterDrain()
			return false
		}
		if qp := l.hca.qps.find(pkt.dstQPN); qp != nil {
			qp.exec.lock()
			if qp.req.link == l && qp.is(verbs.QPStateRTS) {
				qp.answer(&pkt, body)
			}
			qp.exec.release()
		}
		l.resp.release()
	}
	l.afterDrain()
	return true
}

// drainBatch is how many packets of one ring are handled before others get their
// turn.
const drainBatch = 64

// afterDrain tells the peer of the room that was made.
func (l *outLink) afterDrain() {
	if l.resp.roomMade() {
		call(l.ctl, l.wakeFD, attnRequest)
	}
	l.unblock()
}

// answer handles one response. exec is held.
func (qp *queuePair) answer(pkt *packet, body unsafe.Pointer) {
	r := &qp.req
	n, ok := r.answered(pkt.msn)
	if !ok || n == r.inFlight {
		return // not in flight: an answer to what was given up
	}
	if !qp.retire(n) {
		return
	}
	switch pkt.op {
	case pktAck:
		qp.retire(1)
	case pktRNR:
		qp.notReady(pkt.status)
		return
	case pktNak:
		qp.enterError(mlx5.Syndrome(pkt.status), mlx5.SyndromeOK)
	case pktReadData, pktAtomicOK:
		qp.takeData(pkt, body)
	}
	qp.hca.schedule(qp)
}

// retire completes the n oldest messages in flight. False when the QP stopped.
func (qp *queuePair) retire(n uint32) bool {
	r := &qp.req
	for range n {
		w := qp.oldest()
		r.acked += uint16(mlx5.SkipWQE(&qp.sq, r.acked, r.next))
		r.inFlight--
		qp.progressed()
		if w.Flags.Signaled() && !qp.complete(w.Op, w.Index, 0) {
			return false
		}
	}
	return true
}

// oldest decodes the oldest work request in flight, into scratch space of the
// device, which driving protects. It was decoded well before.
func (qp *queuePair) oldest() *mlx5.WQE {
	w := &qp.hca.scratch
	mlx5.DecodeWQE(&qp.sq, qp.req.acked, qp.req.next, w)
	return w
}

// progressed resets what counts failures in a row.
func (qp *queuePair) progressed() {
	qp.req.rnrLeft = qp.attr.RNRRetry
	qp.req.deadline = 0
}

// rnrForever is the RNR retry count that never runs out (IBTA volume 1, 9.7.5.2.8).
const rnrForever = 7

// notReady goes back to the oldest message in flight, which found no receive.
func (qp *queuePair) notReady(timer uint8) {
	r := &qp.req
	if r.rnrLeft == 0 {
		qp.enterError(mlx5.SyndromeRNRExceeded, mlx5.SyndromeOK)
		return
	}
	if r.rnrLeft != rnrForever {
		r.rnrLeft--
	}
	r.msn = (r.msn - r.inFlight) & mlx5PSNMask
	r.inFlight = 0
	r.next = r.acked
	r.opened = false
	r.hold = nanotime() + rnrDelay(timer)
	qp.sleepUntil(r.hold)
}

// takeData stores what a read or an atomic through the ring brought.
func (qp *queuePair) takeData(pkt *packet, body unsafe.Pointer) {
	w := qp.oldest()
	k := qp.walkSend(w, verbs.AccessLocalWrite)
	off, n := pkt.raddr, uint64(pkt.payload)
	src := body
	if pkt.op == pktAtomicOK {
		off, n, src = 0, mlx5.AtomicOperandLen, unsafe.Pointer(&pkt.swapAdd)
	}
	if off > w.Len || n > w.Len-off {
		qp.enterError(mlx5.SyndromeBadResp, mlx5.SyndromeOK)
		return
	}
	if !k.scatter(src, off, n) {
		qp.enterError(mlx5.SyndromeLocalProt, mlx5.SyndromeLocalProt)
		return
	}
	if pkt.flags&flagLast == 0 {
		return
	}
	r := &qp.req
	r.acked += uint16(mlx5.SkipWQE(&qp.sq, r.acked, r.next))
	r.inFlight--
	qp.progressed()
	if w.Flags.Signaled() {
		qp.complete(w.Op, w.Index, uint32(w.Len))
	}
}

// rnrMicros is the delay for each code of the RNR NAK timer (IBTA volume 1,
// table 45).
var rnrMicros = [32]int64{
	655360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920,
	2560, 3840, 5120, 7680, 10240, 15360, 20480, 30720, 40960, 61440, 81920, 122880,
	163840, 245760, 327680, 491520,
}

func rnrDelay(code uint8) int64 { return rnrMicros[code%32] * 1000 }
