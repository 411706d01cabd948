package attach

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
)

// linkID identifies a link on a connection: a random number, not 0, that the dialer chooses and no third process gets.
type linkID uint64

func newLinkID() linkID {
	var b [8]byte
	_, _ = rand.Read(b[:]) // does not fail
	return linkID(binary.NativeEndian.Uint64(b[:]) | 1)
}

// linkMsg is a message about one link, after its handshake: 16 bytes, little-endian.
//
//	0  u32  magic "link"
//	4  u16  type
//	6  u16  0
//	8  u64  id of the link
type linkMsg struct {
	kind linkMsgKind
	id   linkID
}

type linkMsgKind uint16

// Types of messages.
const (
	// msgMove, by the dialer: from now on this connection carries the link, and not the connection of its handshake.
	msgMove linkMsgKind = 1 + iota
	// msgMoved, by the acceptor over the previous connection of the link: the link has moved.
	msgMoved
	// msgLeft, by the acceptor: it has called HangUp, and the link remains mapped until the dialer closes it.
	msgLeft
	// msgClosed, by either side: it has closed the link, and its port is open.
	msgClosed
	// msgGone, by either side: it has closed the link, and closes its port.
	msgGone
)

const (
	linkMsgLen   = 16
	linkMsgMagic = 0x6b6e696c // "link" in memory
)

func (m linkMsg) encode() []byte {
	b := make([]byte, linkMsgLen)
	binary.LittleEndian.PutUint32(b, linkMsgMagic)
	binary.LittleEndian.PutUint16(b[4:], uint16(m.kind))
	binary.LittleEndian.PutUint64(b[8:], uint64(m.id))
	return b
}

// decodeLinkMsg accepts exactly the bytes that encode returns for a valid message. Error: errMalformed.
func decodeLinkMsg(b []byte) (linkMsg, error) {
	if len(b) != linkMsgLen {
		return linkMsg{}, fmt.Errorf("%w: %d bytes about a link", errMalformed, len(b))
	}
	le := binary.LittleEndian
	m := linkMsg{kind: linkMsgKind(le.Uint16(b[4:])), id: linkID(le.Uint64(b[8:]))}
	if le.Uint32(b) != linkMsgMagic || le.Uint16(b[6:]) != 0 || m.kind < msgMove || m.kind > msgGone || m.id == 0 {
		return linkMsg{}, errMalformed
	}
	return m, nil
}
