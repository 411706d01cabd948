package tcp

import "encoding/binary"

// A frame is a header of 8 bytes, a body of fixed length for its type, and data.
// All fields are little endian; docs/wire.md has the layout.

// Frame types.
const (
	frameAM     = 1 // id: active-message id; data: the message
	framePut    = 2 // id: putAck or 0; body target; data: what to write
	frameGet    = 3 // body target, length
	frameAtomic = 4 // id: operation; body target, operands
	frameFlush  = 5 // body: requests sent on the connection before this one
	frameData   = 6 // data: what a get read
	frameDone   = 7 // id: status; body: a value, or nothing
	frameNak    = 8 // id: status; body: tag of the EP whose request was refused
	frameBye    = 9 // the last one: the sender closes in order
)

// Offsets in a frame header.
const (
	offLen  = 0 // u32: bytes after the header
	offType = 4 // u8
	offID   = 5 // u8
	// 2 bytes of 0
	frameLen = 8
)

// putAck in the id of a put asks for a DONE frame.
const putAck = 1

// Offsets in the body of put, get and atomic: where to access.
const (
	offRaddr   = 0  // u64
	offIndex   = 8  // u32: key
	offVariant = 12 // u32
	offNonce   = 16 // u64
	offTag     = 24 // u32: EP of the sender, for NAK
	// 4 bytes of 0
	targetLen = 32
)

// Offsets in the bodies after the target.
const (
	offGetLen = targetLen // u64
	getLen    = targetLen + 8

	offSize    = targetLen     // u8: 4 or 8
	offFetch   = targetLen + 1 // u8: 1 if a DONE with the old value is wanted
	offValue   = targetLen + 8 // u64
	offCompare = targetLen + 16
	atomicLen  = targetLen + 24

	flushLen = 8
	wordLen  = 8 // value of a DONE
	tagLen   = 8 // u32 tag, 4 bytes of 0
)

// perFrame is room for the longest header and body, and for the header of an
// active message.
const frameOverhead = maxAMHeader + frameLen + atomicLen

// maxAMHeader is AM.MaxHeader, in bytes.
const maxAMHeader = 256

// maxRMA is the longest put or get, in bytes.
const maxRMA = 1 << 30

// maxAnswers is the number of requests with an answer that may be outstanding in
// one direction of a connection. The other side keeps room for so many answers,
// so that answering never waits for the transmit buffer. A part of the protocol.
const maxReplies = 128

// answerRoom is the transmit room for all answers of a connection: for each the
// frames of a get, and a NAK.
const replyRoom = maxReplies * (2*frameLen + wordLen + frameLen + tagLen)

// header is a decoded frame header.
type header struct {
	n    int // bytes after the header
	kind uint8
	id   uint8
}

func putHeader(b []byte, kind, id uint8, n int) {
	binary.LittleEndian.PutUint64(b[:frameLen], uint64(uint32(n))|uint64(kind)<<32|uint64(id)<<40)
}

// parseHeader decodes the header at the start of b, which has at least frameLen
// bytes. ok is false if no frame may have such a header; longest is the length
// of the longest active message.
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
	case frameBye:
		return h, h.n == 0 && h.id == 0
	}
	return h, false
}

// target is where a request accesses memory of the receiver.
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
