package ucxtcp

import (
	"encoding/binary"
	"net/netip"
)

// A frame is a header of 5 bytes and a body: the id (u8), the length of the body (u32), and the
// body. All fields are little-endian, except ports and IP addresses. The side that dials sends
// magic before its first frame.

const (
	frameLen = 5
	offID    = 0 // u8
	offLen   = 1 // length of the body
)

// magic is the first value on a connection.
const (
	magic    = 0xCAFEBABE12345678
	magicLen = 8
)

// Ids of control frames. Active messages have lower ids.
const (
	idCM        = 32 // event u32; the body of a connection request is longer
	idPut       = 33 // address u64, length u64, number u32; the data follows the frame
	idPutAck    = 34 // number u32 of the last executed put
	idKeepAlive = 35 // no body
)

// Events of the connection manager.
const (
	eventRequest    = 1
	eventAck        = 2
	eventAckRequest = eventRequest | eventAck // the sender of the ACK also sends messages on this connection
	eventFin        = 4                       // the sender sends no more messages
)

// Lengths of bodies.
const (
	eventLen    = 4
	requestLen4 = offSockaddr + sockaddrLen4
	requestLen6 = offSockaddr + sockaddrLen6
	putLen      = 20
	putAckLen   = 4
)

// Offsets in the body of a connection request.
const (
	offEvent    = 0  // u32
	offFlags    = 4  // u8
	offConn     = 5  // u64: sequence number of an interface connection, key of an endpoint connection
	offSockaddr = 13 // address at which the sender listens, as struct sockaddr of the kernel
)

// flagEP in a connection request means an endpoint connection.
const flagEP = 1

// Offsets in the body of a put.
const (
	offPutAddr = 0  // u64
	offPutLen  = 8  // u64
	offPutSN   = 16 // u32
)

// A sockaddr: family u16, port (big-endian), and the address. For IPv6, 4 bytes of flow label
// precede the address and 4 bytes of scope follow it.
const (
	sockaddrLen4 = 16
	sockaddrLen6 = 28
	offPort      = 2
	offIP4       = 4
	offIP6       = 8
	familyIP4    = 2
	familyIP6    = 10
)

// defaultMaxFrame is the maximum length of an active message that peers with the default
// configuration accept (RX_SEG_SIZE), in bytes.
const defaultMaxFrame = 64 << 10

func putFrame(b []byte, id uint8, n int) {
	_ = b[frameLen-1]
	b[offID] = id
	binary.LittleEndian.PutUint32(b[offLen:], uint32(n))
}

// parseFrame decodes the header at the start of b, which has at least frameLen bytes. ok is false
// for an invalid header. maxAM is the maximum length of an active message.
func parseFrame(b []byte, maxAM int) (id uint8, n int, ok bool) {
	id, size := b[offID], binary.LittleEndian.Uint32(b[offLen:])
	if size > uint32(maxAM) && size > requestLen6 {
		return id, 0, false
	}
	n = int(size)
	switch id {
	case idCM:
		return id, n, n == eventLen || n == requestLen4 || n == requestLen6
	case idPut:
		return id, n, n == putLen
	case idPutAck:
		return id, n, n == putAckLen
	case idKeepAlive:
		return id, n, n == 0
	}
	return id, n, id < idCM && n <= maxAM
}

// request is a decoded connection request.
type request struct {
	toEP   bool
	conn   uint64
	listen netip.AddrPort
}

// bodyLen returns the length of the body of r in bytes.
func (r *request) bodyLen() int {
	if r.listen.Addr().Is4() {
		return requestLen4
	}
	return requestLen6
}

// put encodes the body of r into b, which has bodyLen bytes.
func (r *request) put(b []byte) {
	binary.LittleEndian.PutUint32(b[offEvent:], eventRequest)
	b[offFlags] = 0
	if r.toEP {
		b[offFlags] = flagEP
	}
	binary.LittleEndian.PutUint64(b[offConn:], r.conn)
	putSockaddr(b[offSockaddr:], r.listen)
}

// parseRequest decodes the body of a connection request. ok is false if it is malformed.
func parseRequest(b []byte) (r request, ok bool) {
	if len(b) != requestLen4 && len(b) != requestLen6 || b[offFlags]&^flagEP != 0 {
		return r, false
	}
	r.toEP = b[offFlags] == flagEP
	r.conn = binary.LittleEndian.Uint64(b[offConn:])
	r.listen, ok = parseSockaddr(b[offSockaddr:])
	return r, ok && r.listen.Port() != 0
}

func putSockaddr(b []byte, a netip.AddrPort) {
	clear(b)
	binary.BigEndian.PutUint16(b[offPort:], a.Port())
	if ip := a.Addr(); ip.Is4() {
		binary.LittleEndian.PutUint16(b, familyIP4)
		v := ip.As4()
		copy(b[offIP4:], v[:])
	} else {
		binary.LittleEndian.PutUint16(b, familyIP6)
		v := ip.As16()
		copy(b[offIP6:], v[:])
	}
}

func parseSockaddr(b []byte) (netip.AddrPort, bool) {
	port := binary.BigEndian.Uint16(b[offPort:])
	switch family := binary.LittleEndian.Uint16(b); {
	case family == familyIP4 && len(b) == sockaddrLen4:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[offIP4:])), port), true
	case family == familyIP6 && len(b) == sockaddrLen6:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[offIP6:])), port), true
	}
	return netip.AddrPort{}, false
}
