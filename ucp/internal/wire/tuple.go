package wire

import "encoding/binary"

// AMTuple is the active message that carries a Tuple.
const AMTuple = 19

// TupleLen is the length of a Tuple.
const TupleLen = 32

// TupleKind is the type of a Tuple.
type TupleKind uint32

// Types of Tuple; docs/wire.md, "Tuples". Each is sent either by the sender of the tuple's messages or by their receiver.
const (
	TupleOpen    TupleKind = 1 // sender: requests a queue for the tag
	TupleOpened  TupleKind = 2 // receiver: the queue has the number Number and accepts messages of up to Value bytes; Number is 0 if there is no queue
	TupleSwitch  TupleKind = 3 // sender: later messages of the tag use the queue Number
	TupleStop    TupleKind = 4 // receiver: the sender must stop to use the queue Number
	TupleStopped TupleKind = 5 // sender: Value messages were sent through the queue Number, and no further ones
	TupleClosed  TupleKind = 6 // receiver: Value of these messages were received
	TupleNext    TupleKind = 7 // sender: the next tagged message is one of the queue Number that is sent again; Value is its Place
	TupleResent  TupleKind = 8 // sender: all messages that were not received have been sent again
)

// Tuple is the content of AMTuple: a step in opening or closing the queue of a tag.
type Tuple struct {
	EP     uint64 // the receiver's id of the connection
	Tag    uint64
	Value  uint64
	Kind   TupleKind
	Number uint32 // number of the queue; 0 if there is none
}

// Append appends the message.
func (m *Tuple) Append(b []byte) []byte {
	for _, v := range [...]uint64{m.EP, m.Tag, m.Value} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(m.Kind))
	return binary.LittleEndian.AppendUint32(b, m.Number)
}

// Unpack decodes a message and reports whether its length and Kind are valid.
func (m *Tuple) Unpack(b []byte) bool {
	if len(b) != TupleLen {
		return false
	}
	le := binary.LittleEndian
	m.EP, m.Tag, m.Value = le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:])
	m.Kind, m.Number = TupleKind(le.Uint32(b[24:])), le.Uint32(b[28:])
	return m.Kind >= TupleOpen && m.Kind <= TupleResent
}
