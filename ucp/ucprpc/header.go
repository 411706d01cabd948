package ucprpc

import (
	"encoding/binary"
	"time"
)

// kind is the type of a message.
type kind uint8

const (
	kindCall   kind = 1 + iota // a request that gets a reply
	kindOneWay                 // a request without a reply
	kindReply
	kindCancel // the caller does not wait for the reply any more
	kindDrain  // the sender accepts no more requests
)

// header is the header of an active message of this package; docs/wire.md has its layout. The data of the active
// message is the request or the reply.
type header struct {
	kind    kind
	number  uint16 // number of the method; in a reply the code
	id      callID
	timeout uint32 // in microseconds; 0 means none
}

// callID identifies a request of a peer: the index of its slot there, and how often the slot was used.
type callID struct{ index, generation uint32 }

const (
	headerLen = 16  // bytes, without the name of the method
	maxName   = 255 // bytes of a name
)

// pack writes the header and the name of a method to b, which must be large enough, and returns the length.
func (h *header) pack(b []byte, name string) int {
	_ = b[:headerLen]
	b[0], b[1] = byte(h.kind), byte(len(name))
	binary.LittleEndian.PutUint16(b[2:], h.number)
	binary.LittleEndian.PutUint32(b[4:], h.id.index)
	binary.LittleEndian.PutUint32(b[8:], h.id.generation)
	binary.LittleEndian.PutUint32(b[12:], h.timeout)
	return headerLen + copy(b[headerLen:], name)
}

// unpack decodes a header from an untrusted peer. name is a part of b; it is empty if the
// number identifies the method.
func (h *header) unpack(b []byte) (name []byte, ok bool) {
	if len(b) < headerLen || len(b) != headerLen+int(b[1]) {
		return nil, false
	}
	h.kind = kind(b[0])
	h.number = binary.LittleEndian.Uint16(b[2:])
	h.id.index = binary.LittleEndian.Uint32(b[4:])
	h.id.generation = binary.LittleEndian.Uint32(b[8:])
	h.timeout = binary.LittleEndian.Uint32(b[12:])
	name = b[headerLen:]
	isRequest := h.kind == kindCall || h.kind == kindOneWay
	return name, h.kind >= kindCall && h.kind <= kindDrain && (isRequest || len(name) == 0)
}

// timeoutField returns the timeout in a header for a call that may take d: at least 1, or 0 (no timeout)
// if d does not fit the field.
func timeoutField(d time.Duration) uint32 {
	us := max(d.Microseconds(), 1)
	if us >= 1<<32 {
		return 0
	}
	return uint32(us)
}
