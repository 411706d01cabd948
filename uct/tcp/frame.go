package tcp

import "encoding/binary"

// A frame is a header of 8 bytes, a body whose length depends on the type, and data. All fields are
// little-endian; see docs/wire.md.

// Frame types.
const (
	frameAM     = 1  // id: active message id; data: the message
	framePut    = 2  // id: putAck or 0; body: target; data: the bytes to write
	frameGet    = 3  // body: target, length
	frameAtomic = 4  // id: operation; body: target, operands
	frameFlush  = 5  // body: number of requests sent before it on the connection
	frameData   = 6  // data: the data of a get
	frameDone   = 7  // id: status; body: a value, or empty
	frameNak    = 8  // id: status; body: tag of the EP whose request was refused
	frameBye    = 9  // the last frame: the sender closes gracefully
	frameUnused = 10 // no EP of the sender uses the connection: it may be closed
	frameUsed   = 11 // reply to UNUSED: the connection remains open
)

// Offsets in a frame header.
const (
	offLen  = 0 // u32: bytes after the header
	offType = 4 // u8
	offID   = 5 // u8
	// 2 bytes of 0
	frameLen = 8
)

// putAck in the id of a PUT requests a DONE.
const putAck = 1

// Offsets in the target, the start of the body of PUT, GET and ATOMIC.
const (
	offRaddr   = 0  // u64
	offIndex   = 8  // u32: key
	offVariant = 12 // u32
	offNonce   = 16 // u64
	offTag     = 24 // u32: tag of the sender's EP, for NAK
	// 4 bytes of 0
	targetLen = 32
)

// Offsets in the bodies of GET and ATOMIC.
const (
	offGetLen = targetLen // u64
	getLen    = targetLen + 8

	offSize    = targetLen     // u8: 4 or 8
	offFetch   = targetLen + 1 // u8: 1 to request a DONE with the old value
	offValue   = targetLen + 8 // u64
	offCompare = targetLen + 16
	atomicLen  = targetLen + 24

	flushLen = 8
	wordLen  = 8 // value of a DONE
	tagLen   = 8 // u32 tag, 4 bytes of 0
)

// frameOverhead is the maximum length of a frame without data: of a header and body, or of the headers
// of an active message.
const frameOverhead = maxAMHeader + frameLen + atomicLen

// maxAMHeader is AM.MaxHeader, in bytes.
const maxAMHeader = 256

// maxRMA is the maximum length of a put or get in bytes.
const maxRMA = 1 << 30

// maxReplies is the maximum number of outstanding requests with a reply in one direction of a
// connection. It is part of the protocol. The other side reserves transmit buffer for so many
// replies, so that replies never wait for the buffer.
const maxReplies = 128

// replyRoom is the part of the transmit buffer that is reserved for replies: for each request the
// frames of a get without data, and a NAK; and a USED.
const replyRoom = maxReplies*(2*frameLen+wordLen+frameLen+tagLen) + frameLen

// header is a decoded frame header.
type header struct {
	n    int // bytes after the header
	kind uint8
	id   uint8
}

func putHeader(b []byte, kind, id uint8, n int) {
	binary.LittleEndian.PutUint64(b[:frameLen], uint64(uint32(n))|uint64(kind)<<32|uint64(id)<<40)
}

// parseHeader decodes the header at the start of b, which has at least frameLen bytes. ok is false
// for an invalid header. maxAM is the maximum length of an active message with its header.
func parseHeader(b []byte, maxAM int) (h header, ok bool) {
	w := binary.LittleEndian.Uint64(b[:frameLen])
	h = header{n: int(uint32(w)), kind: uint8(w >> 32), id: uint8(w >> 40)}
	if w>>48 != 0 {
		return h, false
	}
	switch h.kind {
	case frameAM:
		return h, h.n <= maxAM
	case framePut:
		return h, h.n > targetLen && h.n <= targetLen+maxRMA && h.id&^putAck == 0
	case frameGet:
		return h, h.n == getLen
	case frameAtomic:
		return h, h.n == atomicLen
	case frameFlush:
		return h, h.n == flushLen
	case frameData:
		return h, h.n > 0 && h.n <= maxRMA
	case frameDone:
		return h, h.n == 0 || h.n == wordLen
	case frameNak:
		return h, h.n == tagLen
	case frameBye, frameUnused, frameUsed:
		return h, h.n == 0 && h.id == 0
	}
	return h, false
}

// target is the memory of the receiver that a request accesses.
type target struct {
	addr uint64
	key  wireKey
	tag  uint32
}

func putTarget(b []byte, t target) {
	_ = b[targetLen-1]
	binary.LittleEndian.PutUint64(b[offRaddr:], t.addr)
	binary.LittleEndian.PutUint32(b[offIndex:], t.key.index)
	binary.LittleEndian.PutUint32(b[offVariant:], t.key.variant)
	binary.LittleEndian.PutUint64(b[offNonce:], t.key.nonce)
	binary.LittleEndian.PutUint64(b[offTag:], uint64(t.tag))
}

// parseTarget decodes a body of at least targetLen bytes.
func parseTarget(b []byte) target {
	_ = b[targetLen-1]
	return target{
		addr: binary.LittleEndian.Uint64(b[offRaddr:]),
		key: wireKey{
			index:   binary.LittleEndian.Uint32(b[offIndex:]),
			variant: binary.LittleEndian.Uint32(b[offVariant:]),
			nonce:   binary.LittleEndian.Uint64(b[offNonce:]),
		},
		tag: binary.LittleEndian.Uint32(b[offTag:]),
	}
}
