// Package wire has the formats of what ucp sends: remote keys, and the active messages of
// operations that the target executes. docs/wire.md describes them. The handshake is
// package handshake's.
package wire

import (
	"encoding/binary"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Active messages that ucp itself uses.
const (
	AMWireup  = 0 // handshake
	AMRequest = 1 // an atomic for the target to execute
	AMAnswer  = 2 // its result
)

// Lengths of the messages.
const (
	RequestLen = 56
	AnswerLen  = 32
)

// Request asks for an atomic; docs/wire.md, "Atomics by the target".
type Request struct {
	Op     uct.AtomicOp
	Size   uint8  // of the word, 4 or 8
	EP     uint64 // the receiver's name of the connection
	ID     uint64 // the sender's name of the request
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

// Answer is the result of an atomic.
type Answer struct {
	Status ucs.Status
	EP     uint64 // the receiver's name of the connection
	ID     uint64 // that of the Request
	Value  uint64 // what the word held
}

// Append appends the message.
func (m *Answer) Append(b []byte) []byte {
	b = append(b, byte(m.Status), 0, 0, 0, 0, 0, 0, 0)
	for _, v := range [...]uint64{m.EP, m.ID, m.Value} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// Unpack decodes a message and reports whether it has the right length. A status that
// is none is StatusInternal.
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
