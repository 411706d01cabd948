package ucxwire

// WireupType is the type of a wireup message.
type WireupType uint8

// Types of wireup messages.
const (
	WireupPreRequest    WireupType = 0 // the listener's side of a connection by sockets is ready
	WireupRequest       WireupType = 1 // asks for an endpoint; the peer sends a reply
	WireupReply         WireupType = 2
	WireupAck           WireupType = 3 // of a reply, where the transport connects endpoints
	WireupEPCheck       WireupType = 4 // keepalive: is the endpoint there?
	WireupEPRemoved     WireupType = 5 // the reply to a check of an endpoint that is not
	WireupReplyReconfig WireupType = 6 // a reply that wants an ACK
	lastWireup                     = WireupReplyReconfig
)

// ErrMode is the error mode of an endpoint. It must be the same at both sides.
type ErrMode uint8

// Error modes.
const (
	ErrModeNone ErrMode = 0
	ErrModePeer ErrMode = 1 // the peer's failure is detected
)

// WireupMsg sets up an endpoint (IDWireup). SrcEP is the sender's endpoint; DstEP is the receiver's, 0 in
// a first request. ConnSN counts the endpoints between two workers, by which they are matched.
type WireupMsg struct {
	Type         WireupType
	ErrMode      ErrMode
	ConnSN       uint16
	SrcEP, DstEP uint64
	Address      Address
}

const wireupLen = 20

// DecodeWireup decodes a message of IDWireup.
func DecodeWireup(b []byte) (m WireupMsg, err error) {
	if len(b) < wireupLen {
		return m, malformed("wireup message", "it ends early")
	}
	m = WireupMsg{Type: WireupType(b[0]), ErrMode: ErrMode(b[1]), ConnSN: le.Uint16(b[2:]), SrcEP: le.Uint64(b[4:]), DstEP: le.Uint64(b[12:])}
	if m.Type > lastWireup {
		return m, malformed("wireup message", "unknown type")
	}
	m.Address, _, err = DecodeAddress(b[wireupLen:], Layout{Resource: true})
	if err == nil && !m.Address.HasUUID {
		err = malformed("wireup message", "the address has no UUID")
	}
	return m, err
}

// AppendWireup appends the message.
func AppendWireup(b []byte, m *WireupMsg) []byte {
	b = le.AppendUint16(append(b, byte(m.Type), byte(m.ErrMode)), m.ConnSN)
	return AppendAddress(appendWords(b, m.SrcEP, m.DstEP), &m.Address, Layout{Resource: true})
}

// Private is the private data that the sides of a connection by sockets exchange: an endpoint of the
// sender, and the address of its transport's endpoint.
type Private struct {
	// Version is 1 (the default up to release 1.15) or 2. Both sides read both.
	Version int
	EP      uint64
	ErrMode ErrMode
	Address Address
	// Resource says that the address has the index of the resource of its interface, as since release 1.14.
	Resource bool
}

// Parts of private data.
const (
	privateV1        = 11
	privateV2        = 9
	privateVersion2  = 1 << 5
	privateVersion   = 5 // bits below the version
	privateErrMode   = 1
	addrModeCM       = 2 // the address is that of a connection manager's endpoint
	SockHeaderLen    = 16
	MaxPrivate       = 2048
	maxErrModeV1     = 2
	sockStatusOffset = 8
)

// DecodePrivate decodes private data. It finds out whether the address has the index of a resource: in only one of the
// two layouts has it the length that is there, and addresses of transport tcp the lengths that these have.
func DecodePrivate(b []byte) (p Private, err error) {
	if len(b) < privateV2 {
		return p, malformed("private data", "they end early")
	}
	p.EP, p.Version = le.Uint64(b), 2
	head, at := b[8], privateV2
	switch head >> privateVersion {
	case 0:
		if len(b) < privateV1 || b[9] != addrModeCM || head > maxErrModeV1 {
			return p, malformed("private data", "unknown address mode")
		}
		p.Version, at, p.ErrMode = 1, privateV1, ErrMode(head)
	case 1:
		p.ErrMode = ErrMode(head & privateErrMode)
	default:
		return p, malformed("private data", "unknown version")
	}
	for _, p.Resource = range [...]bool{true, false} {
		var n int
		if p.Address, n, err = DecodeAddress(b[at:], Layout{Resource: p.Resource}); err == nil && n == len(b)-at && p.Address.plausible() {
			return p, nil
		}
	}
	return p, malformed("private data", "no layout of the address fits")
}

// Lengths of addresses of transport tcp, in bytes.
const (
	tcpIfaceAddrLen = 2
	tcpEPAddrLen    = 10
)

// plausible reports that each interface of tcp has one endpoint or more, and addresses of the right length.
func (a *Address) plausible() bool {
	tcp := TransportSum("tcp")
	for _, d := range a.Devices {
		for _, i := range d.Ifaces {
			if i.Transport != tcp {
				continue
			}
			if len(i.Addr) != tcpIfaceAddrLen || len(i.EPs) == 0 || len(i.EPs[0].Addr) != tcpEPAddrLen {
				return false
			}
		}
	}
	return true
}

// AppendPrivate appends private data.
func AppendPrivate(b []byte, p *Private) []byte {
	b = le.AppendUint64(b, p.EP)
	if p.Version == 1 {
		b = append(b, byte(p.ErrMode), addrModeCM, 0)
	} else {
		b = append(b, privateVersion2|byte(p.ErrMode)&privateErrMode)
	}
	return AppendAddress(b, &p.Address, Layout{Resource: p.Resource})
}

// SockHeader is before the private data on the socket of a connection manager: their length, and a
// status that is not 0 if the connection is rejected.
type SockHeader struct {
	Len    int
	Status Status
}

// DecodeSockHeader decodes SockHeaderLen bytes. false if the length is above MaxPrivate.
func DecodeSockHeader(b []byte) (h SockHeader, ok bool) {
	if len(b) < SockHeaderLen || le.Uint64(b) > MaxPrivate {
		return h, false
	}
	return SockHeader{int(le.Uint64(b)), Status(b[sockStatusOffset])}, true
}

// AppendSockHeader appends the header.
func AppendSockHeader(b []byte, h SockHeader) []byte {
	b = le.AppendUint64(b, uint64(h.Len))
	return append(b, byte(h.Status), 0, 0, 0, 0, 0, 0, 0)
}

// Key is a remote key: of no memory domain in those that are sent here, by which UCX emulates put, get and
// atomics by active messages.
type Key struct {
	MDs    uint64 // a bit for each memory domain
	Memory uint8
	Parts  [][]byte // a key for each of MDs
}

// EmptyKey is the key of memory of the host that no memory domain of UCX reaches. All releases unpack it.
var EmptyKey = Key{Memory: HostMemory}

const keyLen = 9

// DecodeKey decodes a remote key. What releases since 1.20 append to keys with memory domains is skipped.
func DecodeKey(b []byte) (k Key, err error) {
	if len(b) < keyLen {
		return k, malformed("remote key", "it ends early")
	}
	k = Key{MDs: le.Uint64(b), Memory: b[8]}
	c := cursor{b: b, at: keyLen}
	for m := k.MDs; m != 0; m &= m - 1 {
		k.Parts = append(k.Parts, c.bytes(int(c.u8())))
	}
	if c.why != "" {
		return Key{}, malformed("remote key", c.why)
	}
	return k, nil
}

// AppendKey appends the key.
func AppendKey(b []byte, k *Key) []byte {
	b = append(le.AppendUint64(b, k.MDs), k.Memory)
	for _, part := range k.Parts {
		b = append(append(b, byte(len(part))), part...)
	}
	return b
}
