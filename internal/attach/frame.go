package attach

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// frame is a handshake message: 64 bytes, little-endian.
//
//	 0  u32  magic "gucx"
//	 4  u16  version of the handshake
//	 6  u16  kind
//	 8  u32  layout of the segments   (hello, welcome)
//	12  u32  reason                   (refuse), flags (welcome)
//	16  16B  GID of the sender
//	32  16B  GID of the receiver
//	48  u64  link length (hello), table length (welcome)
//	56  u64  arena length (welcome), id of the link (hello)
//
// The flag of a welcome is 1 if the acceptor shares connections with the dialer's process: see Link.peerShares.
// Fields that a kind does not have are zero. The first 16 bytes and the refuse
// message are the same in every version, so that sides with different versions can refuse each other.
type frame struct {
	kind     kind
	layout   uint32
	reason   Reason
	shares   bool // flag of a welcome
	from, to [16]byte
	len0     uint64 // link or table
	arenaLen uint64 // of a welcome
	link     linkID // of a hello
}

const (
	frameLen     = 64
	frameMagic   = 0x78637567 // "gucx" in memory
	frameVersion = 3
	frameOffVer  = 4
	frameOffKind = 6
	frameOffLay  = 8
	frameOffWhy  = 12
	frameOffFrom = 16
	frameOffTo   = 32
	frameOffLen0 = 48
	frameOffLast = 56
)

// kind is the message type.
type kind uint16

const (
	kindHello kind = 1 + iota
	kindWelcome
	kindRefuse
)

// flagShares is set in a welcome if the acceptor shares connections.
const flagShares = 1

var (
	errMalformed = errors.New("malformed handshake message")
	errVersion   = errors.New("handshake version not supported")
	// errDescriptors: a message has descriptors, and this process cannot have more.
	errDescriptors = fmt.Errorf("descriptors of a handshake message: %w", unix.EMFILE)
)

func (f *frame) encode() []byte {
	b := make([]byte, frameLen)
	le := binary.LittleEndian
	le.PutUint32(b, frameMagic)
	le.PutUint16(b[frameOffVer:], frameVersion)
	le.PutUint16(b[frameOffKind:], uint16(f.kind))
	le.PutUint32(b[frameOffLay:], f.layout)
	le.PutUint32(b[frameOffWhy:], uint32(f.reason))
	if f.shares {
		le.PutUint32(b[frameOffWhy:], flagShares)
	}
	copy(b[frameOffFrom:], f.from[:])
	copy(b[frameOffTo:], f.to[:])
	le.PutUint64(b[frameOffLen0:], f.len0)
	le.PutUint64(b[frameOffLast:], f.arenaLen|uint64(f.link)) // a frame has one of the two
	return b
}

// decodeFrame accepts exactly the bytes that encode returns, and a refuse of any version. It
// does not retain b. Errors: errMalformed, errVersion.
func decodeFrame(b []byte) (frame, error) {
	le := binary.LittleEndian
	if len(b) != frameLen || le.Uint32(b) != frameMagic {
		return frame{}, errMalformed
	}
	f := frame{
		kind:   kind(le.Uint16(b[frameOffKind:])),
		layout: le.Uint32(b[frameOffLay:]),
		reason: Reason(le.Uint32(b[frameOffWhy:])),
		from:   [16]byte(b[frameOffFrom:frameOffTo]),
		to:     [16]byte(b[frameOffTo:frameOffLen0]),
		len0:   le.Uint64(b[frameOffLen0:]),
	}
	if f.kind == kindWelcome && f.reason == flagShares {
		f.reason, f.shares = 0, true
	}
	if last := le.Uint64(b[frameOffLast:]); f.kind == kindHello {
		f.link = linkID(last)
	} else {
		f.arenaLen = last
	}
	if v := le.Uint16(b[frameOffVer:]); v != frameVersion && f.kind != kindRefuse {
		return frame{}, fmt.Errorf("%w: peer has %d, this side %d", errVersion, v, frameVersion)
	}
	return f, f.check()
}

// check checks the rules that do not depend on the port.
func (f *frame) check() error {
	ok := false
	switch f.kind {
	case kindHello, kindWelcome:
		ok = f.reason == 0 && f.len0 != 0 && f.arenaLen|uint64(f.link) != 0 && f.from != [16]byte{} && f.to != [16]byte{}
	case kindRefuse:
		ok = f.reason != 0 && f.layout == 0 && f.len0 == 0 && f.arenaLen == 0
	}
	if !ok {
		return errMalformed
	}
	return nil
}
