package softhca

import (
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/softhca/internal/ring"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// readback is a read whose data the responder is sending, packet by packet as the response ring
// has room. Later requests wait.
type readback struct {
	qp   *queuePair
	pkt  ring.Packet
	sent uint64
}

// read starts the response to a read of memory that the requester does not map.
func (l *inLink) read(qp *queuePair, pkt *ring.Packet) prm.Syndrome {
	if pkt.Total > 0 {
		if _, syn := qp.checkAccess(pkt, 0, uint64(pkt.Total), verbs.AccessRemoteRead); syn != prm.SyndromeOK {
			return syn
		}
	}
	l.flushAck()
	qp.resp.open.kind = ring.OpRead
	l.reading = readback{qp: qp, pkt: *pkt}
	return prm.SyndromeOK
}

// current reports whether the QP still serves the read: since the read began it was not stopped,
// reset, destroyed, or connected to another peer.
func (b *readback) current(l *inLink) bool {
	return b.qp.resp.open.kind == ring.OpRead && b.qp.entry.Accepts(b.pkt.DstQPN, b.pkt.SrcQPN, &l.gid)
}

// finishRead sends the remaining data of the current read. False if the ring is full.
func (l *inLink) finishRead() bool {
	b := &l.reading
	for b.qp != nil {
		if !b.current(l) {
			b.qp = nil
			break
		}
		n := min(uint64(b.pkt.Total)-b.sent, uint64(b.qp.mtu()))
		a := l.resp.Reserve(int(n))
		if a == nil {
			return false
		}
		a.Op, a.DstQPN, a.MSN, a.RAddr = ring.OpReadData, b.pkt.SrcQPN, b.pkt.MSN, b.sent
		if n > 0 {
			p, syn := b.qp.checkAccess(&b.pkt, b.sent, n, verbs.AccessRemoteRead)
			if syn != prm.SyndromeOK { // the region was deregistered meanwhile
				a.Op, a.Status, a.Payload = ring.OpNak, uint8(syn), 0
				b.qp = nil
				l.reply(a)
				return true
			}
			move(a.Body(), p, n)
			l.hca.driving.Quiescent() // Publish is the barrier
		}
		b.sent += n
		if b.sent == uint64(b.pkt.Total) {
			a.Flags |= ring.FlagLast
			b.qp.resp.endMessage()
			b.qp = nil
		}
		l.reply(a)
	}
	return true
}
