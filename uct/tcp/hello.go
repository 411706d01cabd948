package tcp

import (
	"encoding/binary"

	"github.com/gucx/gucx/internal/keypair"
)

// The handshake: the side that dials sends a HELLO and the other side answers. Both messages have
// the same length and layout and prove the identity of their sender; see docs/wire.md.

const (
	helloMagic   = 0x50435847 // "GXCP"
	helloVersion = 4
	helloLen     = 128
	helloStart   = 8 // bytes with the same meaning in all versions
)

// Offsets in a handshake message.
const (
	offMagic    = 0                     // u32
	offVersion  = 4                     // u16
	offMsg      = 6                     // u8: msgHello or msgAnswer
	offCode     = 7                     // u8: of an answer
	offFrom     = 8                     // public key of the sender's iface
	offTo       = offFrom + keypair.Len // u64: id of the receiver's iface
	offConn     = offTo + 8             // u64: id of this connection, a random number of the side that dials
	offOther    = offConn + 8           // u64: HELLO: the connection that it replaces; answer codeOpen: the open connection
	offSeg      = offOther + 8          // u32: maximum length of an active message, without its header
	offReplies  = offSeg + 4            // u32: maxReplies
	offRail     = offReplies + 4        // u32: 0 for the first connection, from 1 for rails
	offNumber   = offRail + 4           // u64: HELLO: its sequence number at the sender, from 1; answer: 0
	offFeatures = offNumber + 8         // u32: bit 0: featureUnused; other bits are ignored
	helloUnused = offFeatures + 4       // zeros up to the proof
	offProof    = helloLen - proofLen   // authenticates all bytes before it
)

// Types of handshake message.
const (
	msgHello  = 1
	msgAnswer = 2
)

// answerCode is the result of a HELLO.
type answerCode uint8

const (
	codeOK      answerCode = 0
	codeYield   answerCode = 1 // the attempt of the answering side continues: wait for it
	codeOpen    answerCode = 2 // the two ifaces have an open connection
	codeVersion answerCode = 3 // unknown version; an answer without proof
	codeRefused answerCode = 4 // too many connections, or other limits than those of the answering side
	codeTLS     answerCode = 5 // TLS is required; an answer without proof that does not name its receiver
	codeEnd     answerCode = 6
)

// hello is a decoded handshake message.
type hello struct {
	version uint16
	msg     uint8
	code    answerCode
	from    keypair.PublicKey
	to      uint64
	conn    uint64
	other   uint64
	seg     uint32
	replies uint32
	rail    uint32
	number  uint64

	features uint32
}

// put encodes h into b, without a proof.
func (h *hello) put(b *[helloLen]byte) {
	*b = [helloLen]byte{}
	binary.LittleEndian.PutUint32(b[offMagic:], helloMagic)
	binary.LittleEndian.PutUint16(b[offVersion:], h.version)
	b[offMsg], b[offCode] = h.msg, uint8(h.code)
	copy(b[offFrom:], h.from[:])
	binary.LittleEndian.PutUint64(b[offTo:], h.to)
	binary.LittleEndian.PutUint64(b[offConn:], h.conn)
	binary.LittleEndian.PutUint64(b[offOther:], h.other)
	binary.LittleEndian.PutUint32(b[offSeg:], h.seg)
	binary.LittleEndian.PutUint32(b[offReplies:], h.replies)
	binary.LittleEndian.PutUint32(b[offRail:], h.rail)
	binary.LittleEndian.PutUint64(b[offNumber:], h.number)
	binary.LittleEndian.PutUint32(b[offFeatures:], h.features)
}

// parseHello decodes b. ok is false if b is not a handshake message of type msg. If its version is
// not helloVersion, only version, msg and code are valid. parseHello does not check the proof.
func parseHello(b *[helloLen]byte, msg uint8) (h hello, ok bool) {
	h = hello{
		version: binary.LittleEndian.Uint16(b[offVersion:]),
		msg:     b[offMsg],
		code:    answerCode(b[offCode]),
		from:    keypair.PublicKey(b[offFrom:]),
		to:      binary.LittleEndian.Uint64(b[offTo:]),
		conn:    binary.LittleEndian.Uint64(b[offConn:]),
		other:   binary.LittleEndian.Uint64(b[offOther:]),
		seg:     binary.LittleEndian.Uint32(b[offSeg:]),
		replies: binary.LittleEndian.Uint32(b[offReplies:]),
		rail:    binary.LittleEndian.Uint32(b[offRail:]),
		number:  binary.LittleEndian.Uint64(b[offNumber:]),

		features: binary.LittleEndian.Uint32(b[offFeatures:]),
	}
	if binary.LittleEndian.Uint32(b[offMagic:]) != helloMagic || h.msg != msg || h.from.ID() == 0 {
		return h, false
	}
	return h, h.code < codeEnd && (h.msg == msgAnswer || h.code == codeOK)
}

// hasMagic reports whether the message begins with the magic number, so that other protocols are
// refused after 4 bytes.
func hasMagic(b *[helloLen]byte) bool {
	return binary.LittleEndian.Uint32(b[offMagic:]) == helloMagic
}

// requireTLS returns the answer for a client that sent a HELLO without TLS; nil if the client sent
// something else.
func (it *iface) requireTLS(first [5]byte) []byte {
	if binary.LittleEndian.Uint32(first[:]) != helloMagic {
		return nil
	}
	var b [helloLen]byte
	(&hello{version: helloVersion, msg: msgAnswer, code: codeTLS, from: it.addr.key}).put(&b)
	return b[:]
}
