package prm

import "github.com/gucx/gucx/uct/ib/verbs"

// AVLen is the length of a datagram (AV) segment.
const AVLen = 48

const (
	avExtended  = 1 << 31 // with the QPN: the AV has 48 bytes
	avGRH       = 1 << 30 // a GRH is present; InfiniBand links only
	avFlowMask  = 1<<20 - 1
	avSGIDShift = 20
	avSGIDMask  = 0xff
	avQPNMask   = qpnMask
	avPathMask  = 0x7f
)

// AV is the datagram segment of a UD WQE: its destination.
type AV struct {
	QKey   uint32
	QPN    uint32 // 24 bits
	RateSL uint8  // IB: static rate << 4 | SL; RoCE: rate << 4 | (SL & 7) << 1
	Path   uint8  // IB: source path bits, 7 bits; RoCE: 0
	// DLID on InfiniBand; on RoCE the UDP source port.
	DLID         uint16
	MAC          [6]byte // RoCE
	TrafficClass uint8
	HopLimit     uint8
	GRH          bool // InfiniBand only
	SGIDIndex    uint8
	FlowLabel    uint32 // 20 bits
	DGID         verbs.GID
}

// Put writes the segment.
func (a *AV) Put(b *[AVLen]byte) {
	PutAVDest(b, a.QKey, a.QPN)
	be.PutUint32(b[12:16], uint32(a.RateSL)<<24|uint32(a.Path&avPathMask)<<16|uint32(a.DLID))
	be.PutUint32(b[16:20], 0)
	copy(b[20:26], a.MAC[:])
	b[26] = a.TrafficClass
	b[27] = a.HopLimit
	w := uint32(a.SGIDIndex)<<avSGIDShift | a.FlowLabel&avFlowMask
	if a.GRH {
		w |= avGRH
	}
	be.PutUint32(b[28:32], w)
	copy(b[32:48], a.DGID[:])
}

// PutAVDest writes the part of the segment that depends on the work request and
// not on the address handle: Q_Key and remote QPN.
func PutAVDest(b *[AVLen]byte, qkey, qpn uint32) {
	be.PutUint64(b[0:8], uint64(qkey)<<32)
	be.PutUint32(b[8:12], qpn|avExtended)
}

// Load reads the segment; false if the extended bit is not set: such
// an AV is shorter and is not used here.
func (a *AV) Load(b *[AVLen]byte) bool {
	dest := be.Uint32(b[8:12])
	a.QKey = be.Uint32(b[0:4])
	a.QPN = dest & avQPNMask
	a.RateSL = b[12]
	a.Path = b[13] & avPathMask
	a.DLID = be.Uint16(b[14:16])
	copy(a.MAC[:], b[20:26])
	a.TrafficClass = b[26]
	a.HopLimit = b[27]
	w := be.Uint32(b[28:32])
	a.GRH = w&avGRH != 0
	a.SGIDIndex = uint8(w >> avSGIDShift & avSGIDMask)
	a.FlowLabel = w & avFlowMask
	copy(a.DGID[:], b[32:48])
	return dest&avExtended != 0
}
