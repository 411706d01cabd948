package wire

import (
	"encoding/binary"
	"math"

	"github.com/gucx/gucx/ucs"
)

// Active messages of messages; docs/wire.md, "Messages".
const (
	AMTag         = 4  // a tagged message
	AMTagSync     = 5  // one whose sender waits until it is received
	AMTagFirst    = 6  // the first fragment of one
	AMTagRTS      = 7  // one whose data stays with the sender until it is asked for
	AMActive      = 8  // an active message
	AMActiveFirst = 9  // the first fragment of one
	AMActiveRTS   = 10 // one whose data stays with the sender until it is asked for
	AMStream      = 11 // the next bytes of a stream
	AMFrag        = 12 // the next fragment of a message
	AMAck         = 13 // a message was received
	AMRTR         = 14 // the receiver asks for the data of a message
	AMData        = 15 // a part of that data
	AMPutDone     = 16 // all of that data was put
	AMCredit      = 17 // the sender may send more
	AMActiveShort = 18 // an active message without a header
	AMStreamRTS   = 20 // the next bytes of a stream, which stay with the sender until the receiver has got them
	AMStreamTaken = 21 // it has, as many as it says
	AMWithdraw    = 22 // the sender wants its announced data back
	AMStreamEnd   = 26 // the sender sends nothing more of its stream
	AMUnknown     = 27 // the first of those that this version does not know
)

// WordLen is the length of the word of a message: all that a short active message has besides
// its data.
const WordLen = 8

// ShortActive is the word of a short active message over the connection that its receiver
// calls ep: the upper half of that id, then the lowest 16 bits of its lower half. The id of
// the active message is added. An id that ShortEP does not return has bits that do not fit
// in.
func ShortActive(ep uint64) (word uint64) { return ep&^math.MaxUint32 | ep&math.MaxUint16<<16 }

// ShortEP is the receiver's id of the connection in the word of a short active message, and
// ShortID the id of the active message.
func ShortEP(word uint64) uint64 { return word&^math.MaxUint32 | word>>16&math.MaxUint16 }

// ShortID see ShortEP.
func ShortID(word uint64) uint16 { return uint16(word) }

// HeadLen is the length of a Head, and NameLen that of the part which follows the word.
const (
	HeadLen = 16
	NameLen = 8
)

// Head begins every message. A word comes first so that a message goes out in one short
// call, of which that is the header.
type Head struct {
	Word uint64 // the tag; id and length of the header of an active message; offset in a stream
	EP   uint64 // the receiver's name of the connection
}

// Append appends the head.
func (h *Head) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, h.Word)
	return binary.LittleEndian.AppendUint64(b, h.EP)
}

// Unpack decodes the head and returns what follows it. It reports whether the head is
// there.
func (h *Head) Unpack(b []byte) (rest []byte, ok bool) {
	if len(b) < HeadLen {
		return nil, false
	}
	h.Word, h.EP = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	return b[HeadLen:], true
}

// PartLen is the length of a Part.
const PartLen = 16

// Part follows the head of AMTagFirst and AMActiveFirst, where Value is the length of the
// whole message, and of AMTagSync, where it is 0.
type Part struct {
	Value uint64
	ID    uint64 // the sender's name of the message
}

// Append appends the part.
func (p *Part) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, p.Value)
	return binary.LittleEndian.AppendUint64(b, p.ID)
}

// Unpack decodes the part and returns what follows it.
func (p *Part) Unpack(b []byte) (rest []byte, ok bool) {
	if len(b) < PartLen {
		return nil, false
	}
	p.Value, p.ID = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	return b[PartLen:], true
}

// FragLen is the length of a Frag.
const FragLen = 24

// Frag precedes a fragment of AMFrag, where ID is the sender's name of the message, and of
// AMData, where it is the receiver's name of the receive.
type Frag struct {
	EP, ID uint64
	Offset uint64 // of the fragment in the message
}

// Append appends what precedes the fragment.
func (f *Frag) Append(b []byte) []byte { return appendThree(b, f.EP, f.ID, f.Offset) }

// appendThree appends three words: written where they are to be, which takes a third of appending
// one after the other.
func appendThree(b []byte, x, y, z uint64) []byte {
	var w [24]byte
	binary.LittleEndian.PutUint64(w[:], x)
	binary.LittleEndian.PutUint64(w[8:], y)
	binary.LittleEndian.PutUint64(w[16:], z)
	return append(b, w[:]...)
}

// Unpack decodes what precedes a fragment, and returns the fragment.
func (f *Frag) Unpack(b []byte) (data []byte, ok bool) {
	if len(b) < FragLen {
		return nil, false
	}
	le := binary.LittleEndian
	f.EP, f.ID, f.Offset = le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:])
	return b[FragLen:], true
}

// ControlLen is the length of a Control.
const ControlLen = 24

// ControlWord is the length of its first word, EP, which is the header where it is sent short.
const ControlWord = 8

// Control is all of AMAck, AMPutDone, AMCredit, AMStreamTaken and AMStreamEnd.
type Control struct {
	EP    uint64 // the receiver's name of the connection
	ID    uint64 // the receiver's name of the message or the receive; 0 in AMCredit; in AMStreamEnd the length of the stream
	Value uint64 // a status, the bytes of credit, or those that were taken of a stream
}

// Append appends the message.
func (c *Control) Append(b []byte) []byte {
	return appendThree(b, c.EP, c.ID, c.Value)
}

// Unpack decodes a message and reports whether it has the right length.
func (c *Control) Unpack(b []byte) bool {
	if len(b) != ControlLen {
		return false
	}
	le := binary.LittleEndian
	c.EP, c.ID, c.Value = le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:])
	return true
}

// Status is the value as a status; one that is none is StatusInternal.
func (c *Control) Status() ucs.Status {
	if c.Value > 0x7f {
		return ucs.StatusInternal
	}
	return ended(ucs.Status(c.Value))
}

// ended is st if that is how something may have ended, and StatusInternal otherwise.
func ended(st ucs.Status) ucs.Status {
	if st == ucs.StatusInProgress || st.Err() == ucs.ErrInternal {
		return ucs.StatusInternal
	}
	return st
}
