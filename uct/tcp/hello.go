package tcp

import (
	"encoding/binary"

	"github.com/gucx/gucx/internal/keypair"
)

// The handshake: the side that connects sends a HELLO, the other answers. Both
// messages have the same length and layout, and prove who their sender is; docs/wire.md
// has it.

const (
	helloMagic   = 0x50435847 // "GXCP"
	helloVersion = 4
	helloLen     = 128
	helloStart   = 8 // bytes that mean the same in all versions
)

// Offsets in a handshake message.
const (
	offMagic    = 0                     // u32
	offVersion  = 4                     // u16
	offMsg      = 6                     // u8: msgHello or msgAnswer
	offCode     = 7                     // u8: of an answer
	offFrom     = 8                     // public key of the sender's iface
	offTo       = offFrom + keypair.Len // u64: id of the receiver's iface
	offConn     = offTo + 8             // u64: id of this connection, random, chosen by the side that connects
	offOther    = offConn + 8           // u64: hello: the connection it replaces; answer codeOpen: the one that is open
	offSeg      = offOther + 8          // u32: longest active message that the sender takes
	offReplies  = offSeg + 4            // u32: maxAnswers
	offRail     = offReplies + 4        // u32: 0 for the connection of a peer, 1 and up for its rails
	offNumber   = offRail + 4           // u64: of a HELLO among those of its sender, from 1; 0 in an answer
	helloUnused = offNumber + 8         // 0 up to the proof
	offProof    = helloLen - proofLen   // over everything before
)

// Kinds of handshake message.
const (
	msgHello  = 1
	msgAnswer = 2
)

// answerCode is what a HELLO leads to.
type answerCode uint8

const (
	codeOK      answerCode = 0
	codeYield   answerCode = 1 // the other side's own attempt goes on: wait for it
	codeOpen    answerCode = 2 // there is a connection between the two already
	codeVersion answerCode = 3 // the version is not spoken here; an answer without proof
	codeRefused answerCode = 4 // too many connections, or limits that do not fit
	codeTLS     answerCode = 5 // TLS is demanded here; an answer without proof that does not name its receiver
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
}

// parseHello decodes b. ok is false if this is not a handshake message of the
// wanted kind; of another version than helloVersion only version, msg and code are
// meaningful. It does not look at the proof.
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
	}
	if binary.LittleEndian.Uint32(b[offMagic:]) != helloMagic || h.msg != msg || h.from.ID() == 0 {
		return h, false
	}
	return h, h.code < codeEnd && (h.msg == msgAnswer || h.code == codeOK)
}

// looksRight reports whether the first 4 bytes of a message are right, so that
// who says something else is refused at once.
func hasMagic(b *[helloLen]byte) bool {
	return binary.LittleEndian.Uint32(b[offMagic:]) == helloMagic
}

// demandTLS answers a client that began with a plain HELLO where TLS is demanded; nil if it
// began with something else.
func (it *Iface) requireTLS(first [5]byte) []byte {
	if binary.LittleEndian.Uint32(first[:]) != helloMagic {
		return nil
	}
	var b [helloLen]byte
	(&hello{version: helloVersion, msg: msgAnswer, code: codeTLS, from: it.addr.key}).put(&b)
	return b[:]
}
