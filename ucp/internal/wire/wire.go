// Package wire has the formats of the bytes that ucp sends: remote keys, and active messages of the transport, which carry
// messages, control messages and requests for atomics. docs/wire.md describes them. Package handshake has the formats of
// the handshake.
package wire

import (
	"encoding/binary"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Ids of the active messages for handshakes and atomics.
const (
	AMWireup  = 0 // handshake
	AMRequest = 1 // a request to execute an atomic
	AMAnswer  = 2 // the reply to AMRequest
)

// Lengths of the messages.
const (
	RequestLen = 56
	AnswerLen  = 32
)

// Request is the content of AMRequest: an atomic that the target must execute; docs/wire.md, "Atomics by the target".
type Request struct {
	Op     uct.AtomicOp
	Size   uint8  // size of the word in bytes: 4 or 8
	EP     uint64 // the receiver's id of the connection
	ID     uint64 // the sender's id of the request
	Region uint64
	Addr   uint64

	Value, Compare uint64
}

// Append appends the message.
func (m *Request) Append(b []byte) []byte {
	b = append(b, byte(m.Op), m.Size, 0, 0, 0, 0, 0, 0)
	for _, v := range [...]uint64{m.EP, m.ID, m.Region, m.Addr, m.Value, m.Compare} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// Unpack decodes a message and reports whether it has the right length.
func (m *Request) Unpack(b []byte) bool {
	if len(b) != RequestLen {
		return false
	}
	m.Op, m.Size = uct.AtomicOp(b[0]), b[1]
	for i, v := range [...]*uint64{&m.EP, &m.ID, &m.Region, &m.Addr, &m.Value, &m.Compare} {
		*v = binary.LittleEndian.Uint64(b[8+8*i:])
	}
	return true
}

// Answer is the content of AMAnswer: the result of an atomic.
type Answer struct {
	Status ucs.Status
	EP     uint64 // the receiver's id of the connection
	ID     uint64 // ID of the Request
	Value  uint64 // value of the word before the atomic
}

// Append appends the message.
func (m *Answer) Append(b []byte) []byte {
	b = append(b, byte(m.Status), 0, 0, 0, 0, 0, 0, 0)
	for _, v := range [...]uint64{m.EP, m.ID, m.Value} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// Unpack decodes a message and reports whether it has the right length. It replaces an invalid status by StatusInternal.
func (m *Answer) Unpack(b []byte) bool {
	if len(b) != AnswerLen {
		return false
	}
	m.Status = ended(ucs.Status(b[0]))
	for i, v := range [...]*uint64{&m.EP, &m.ID, &m.Value} {
		*v = binary.LittleEndian.Uint64(b[8+8*i:])
	}
	return true
}
