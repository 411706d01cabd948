package dgram

import (
	"encoding/binary"

	"github.com/gucx/gucx/internal/seq"
)

// HeaderLen is the length of the packet header in bytes.
const HeaderLen = 8

// MaxID is the largest connection id: 24 bits.
const MaxID = 1<<24 - 1

// Header is the network header of a datagram. Packed format, big-endian:
//
//	0  u24  connection id of the receiver; 0 in a connect request
//	3  u8   bit 7: active message, else control
//	        bit 6: acknowledge at once
//	        bits 5..0: active message id, 32 of a probe, or type of control packet
//	4  u16  PSN of a data packet; of a control packet the next PSN of its sender
//	6  u16  PSN of the last data packet accepted in order
type Header struct {
	Dest   uint32
	AM     bool // has a PSN
	AckReq bool
	ID     uint8 // active message id, ProbeID or a Control
	PSN    seq.U16
	Ack    seq.U16
}

// ProbeID means no active message: the receiver delivers nothing.
const ProbeID = 1 << 5

// Control is the type of a packet without an active message.
type Control = uint8

// Control packets.
const (
	CtlAck  Control = 1 // no body
	CtlNak  Control = 2 // a packet is missing after Ack
	CtlCreq Control = 3 // connect request: Creq follows
	CtlCrep Control = 4 // connect reply: Crep follows
	CtlFin  Control = 5 // the iface of the sender closes
	ctlEnd  Control = 6
)

const (
	bitAM     = 1 << 7
	bitAckReq = 1 << 6
	maskID    = 1<<6 - 1
)

// Put writes h to b, which has at least HeaderLen bytes. Dest and ID must be in
// range.
func (h Header) Put(b []byte) {
	w := h.Dest<<8 | uint32(h.ID)
	if h.AM {
		w |= bitAM
	}
	if h.AckReq {
		w |= bitAckReq
	}
	_ = b[HeaderLen-1]
	binary.BigEndian.PutUint32(b, w)
	binary.BigEndian.PutUint16(b[4:], uint16(h.PSN))
	binary.BigEndian.PutUint16(b[6:], uint16(h.Ack))
}

// ParseHeader decodes the header of a datagram, which may come from an untrusted peer; false if it
// is too short or invalid.
func ParseHeader(b []byte) (h Header, ok bool) {
	if len(b) < HeaderLen {
		return h, false
	}
	w := binary.BigEndian.Uint32(b)
	h = Header{
		Dest:   w >> 8,
		AM:     w&bitAM != 0,
		AckReq: w&bitAckReq != 0,
		ID:     uint8(w & maskID),
		PSN:    seq.U16(binary.BigEndian.Uint16(b[4:])),
		Ack:    seq.U16(binary.BigEndian.Uint16(b[6:])),
	}
	if h.ID > ProbeID || !h.AM && (h.ID == 0 || h.ID >= ctlEnd) {
		return Header{}, false
	}
	return h, true
}
