package xrccore

import (
	"encoding/binary"

	"github.com/gucx/gucx/uct/ib/internal/rccore"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// message is a control message between two EPs, docs/wire.md "xrc control message". All
// fields big endian:
//
//	0  u8   version, 1
//	1  u8   kind: 1 request, 2 reply, 3 source, 4 offer
//	2  u8   request, reply: index of the connection at the requesting EP; else 0
//	3  u8   request: path MTU, by enum ibv_mtu; else 0
//	4  u32  request, source: QPN of the initiator; reply, offer: QPN of the target; 0
//	        in a reply if the peer has no target
//	8  u32  request, offer: first PSN of the initiator; else 0
//	12 u32  offer: QPN of the target that has failed; else 0
type message struct {
	kind         uint8
	conn         uint8
	mtu          verbs.MTU
	qpn          uint32
	psn          uint32
	failedTarget uint32
}

const (
	messageVersion = 1
	messageLen     = rccore.MaxControl

	kindRequest = 1
	kindReply   = 2
	kindSource  = 3 // initiator that sends the messages of the EP
	kindOffer   = 4 // target for the initiator of the EP, instead of a failed one

	max24 = 1<<24 - 1
)

func (m *message) encode() []byte {
	var b [messageLen]byte
	b[0], b[1], b[2], b[3] = messageVersion, m.kind, m.conn, uint8(m.mtu)
	binary.BigEndian.PutUint32(b[4:], m.qpn)
	binary.BigEndian.PutUint32(b[8:], m.psn)
	binary.BigEndian.PutUint32(b[12:], m.failedTarget)
	return b[:]
}

// parseMessage checks and unpacks a message from a peer.
func parseMessage(b []byte) (m message, ok bool) {
	if len(b) != messageLen || b[0] != messageVersion {
		return m, false
	}
	m = message{kind: b[1], conn: b[2], mtu: verbs.MTU(b[3]),
		qpn: binary.BigEndian.Uint32(b[4:]), psn: binary.BigEndian.Uint32(b[8:]), failedTarget: binary.BigEndian.Uint32(b[12:])}
	switch {
	case m.conn >= maxQueueConns || m.qpn > max24 || m.psn > max24 || m.failedTarget > max24:
		return m, false
	case (m.failedTarget != 0) != (m.kind == kindOffer):
		return m, false
	case m.kind == kindRequest:
		return m, m.mtu.Bytes() != 0 && m.qpn != 0
	case m.kind == kindReply:
		return m, m.mtu == 0 && m.psn == 0
	case m.kind == kindSource:
		return m, m.mtu == 0 && m.psn == 0 && m.conn == 0 && m.qpn != 0
	case m.kind == kindOffer:
		return m, m.mtu == 0 && m.conn == 0 && m.qpn != 0
	}
	return m, false
}
