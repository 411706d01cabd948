package softhca

import (
	"encoding/binary"
	"unsafe"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/softhca/internal/ring"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// grhLen is the length of the GRH area before the payload of a datagram (IBTA volume 1, 11.4.1.2).
const grhLen = 40

// receiveDatagram delivers a UD packet, or drops it: wrong Q_Key, QP not ready, no
// receive posted.
func (qp *queuePair) receiveDatagram(l *inLink, pkt *ring.Packet, body unsafe.Pointer) {
	if !qp.is(verbs.QPStateRTS) && !qp.is(verbs.QPStateRTR) || pkt.Ext != qp.attr.QKey {
		return
	}
	entry := &qp.resp.open.entry
	ok, syn := qp.rq.pop(entry)
	if !ok {
		return
	}
	n := uint64(pkt.Payload)
	if syn == prm.SyndromeOK && n+grhLen > entry.total {
		syn = prm.SyndromeLocalLength
	}
	k := walk{qp: qp, sges: entry.sge[:entry.nsge], need: verbs.AccessLocalWrite, pdn: qp.rq.pdn}
	grh := l.grh(n)
	if syn == prm.SyndromeOK && !(k.scatter(unsafe.Pointer(&grh), 0, grhLen) && k.scatter(body, grhLen, n)) {
		syn = prm.SyndromeLocalProt
	}
	if syn != prm.SyndromeOK {
		qp.resp.open.queue = qp.rq
		qp.failReceive(syn, prm.SyndromeOK)
		return
	}
	op := prm.CQERespSend
	if pkt.Flags&ring.FlagImm != 0 {
		op = prm.CQERespSendImm
	}
	e := prm.CQE{Opcode: op, Solicited: pkt.Flags&ring.FlagSolicited != 0, UserIndex: qp.uidx,
		WQECounter: entry.index, QPN: qp.qpn, ByteCount: uint32(n + grhLen), Imm: pkt.Imm,
		SrcQP: pkt.SrcQPN, GRH: 1}
	if !qp.recvCQ.push(&e) {
		qp.failOverrun()
	}
}

// grh returns the global route header of a datagram of n payload bytes (IBTA volume
// 1, 8.3): version 6, payload length, next header 0x1b, hop limit, source and
// destination GID.
func (l *inLink) grh(n uint64) (h [grhLen]byte) {
	const version, nextHeader, hopLimit = 6, 0x1b, 64
	h[0] = version << 4
	binary.BigEndian.PutUint16(h[4:6], uint16(n))
	h[6], h[7] = nextHeader, hopLimit
	binary.NativeEndian.PutUint64(h[8:16], l.gid[0])
	binary.NativeEndian.PutUint64(h[16:24], l.gid[1])
	copy(h[24:40], l.hca.gid[:])
	return h
}
