package wire

import "encoding/binary"

// AMTuple is the active message that carries a Tuple.
const AMTuple = 19

// TupleLen is the length of a Tuple.
const TupleLen = 32

// TupleKind is what a Tuple says.
type TupleKind uint32

// Kinds of Tuple; docs/wire.md, "Tuples". They come from the sender of the tuple's messages
// or from their receiver.
const (
	TupleOpen    TupleKind = 1 // sender: it wants a queue for the tag
	TupleOpened  TupleKind = 2 // receiver: Number is the queue, for messages of up to Value bytes; Number 0: there is none
	TupleSwitch  TupleKind = 3 // sender: later messages of the tag come through the queue Number
	TupleStop    TupleKind = 4 // receiver: the queue Number is to be left
	TupleStopped TupleKind = 5 // sender: Value messages were sent through the queue Number, and no more come
	TupleClosed  TupleKind = 6 // receiver: Value of them have come
	TupleNext    TupleKind = 7 // sender: the next tagged message was to go through the queue Number; Value is its place among all
	TupleResent  TupleKind = 8 // sender: all that had not come was sent again
)

// Tuple is all of AMTuple: a step in opening or closing the queue of a tag.
type Tuple struct {
	EP     uint64 // the receiver's name of the connection
	Tag    uint64
	Value  uint64
	Kind   TupleKind
	Number uint32 // of the queue; 0 where there is none
}

// Append appends the message.
func (m *Tuple) Append(b []byte) []byte {
	for _, v := range [...]uint64{m.EP, m.Tag, m.Value} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(m.Kind))
	return binary.LittleEndian.AppendUint32(b, m.Number)
}

// Unpack decodes a message and reports whether it has the right length and a kind.
func (m *Tuple) Unpack(b []byte) bool {
	if len(b) != TupleLen {
		return false
	}
	le := binary.LittleEndian
	m.EP, m.Tag, m.Value = le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:])
	m.Kind, m.Number = TupleKind(le.Uint32(b[24:])), le.Uint32(b[28:])
	return m.Kind >= TupleOpen && m.Kind <= TupleResent
}
