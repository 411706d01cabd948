package wire

import (
	"encoding/binary"
	"math"

	"github.com/gucx/gucx/ucs"
)

// Ids of the active messages that carry messages; see docs/wire.md, "Messages".
const (
	AMTag         = 4  // a tagged message
	AMTagSync     = 5  // a synchronous tagged message: the sender awaits an ACK
	AMTagFirst    = 6  // the first fragment of a tagged message
	AMTagRTS      = 7  // the RTS of a tagged message
	AMActive      = 8  // an active message
	AMActiveFirst = 9  // the first fragment of an active message
	AMActiveRTS   = 10 // the RTS of an active message
	AMStream      = 11 // the next bytes of a stream
	AMFrag        = 12 // the next fragment of a message
	AMAck         = 13 // the ACK of a message
	AMRTR         = 14 // the receiver requests the data of a rendezvous message
	AMData        = 15 // a fragment of that data
	AMPutDone     = 16 // all of that data was put
	AMCredit      = 17 // grants credit
	AMActiveShort = 18 // an active message without a header
	AMStreamRTS   = 20 // the RTS of the next bytes of a stream
	AMStreamTaken = 21 // the reply to AMStreamRTS: how many bytes the receiver has read
	AMWithdraw    = 22 // the sender withdraws a rendezvous message
	AMStreamEnd   = 26 // the end of a stream
	AMUnknown     = 27 // the first id that this version does not use
)

// WordLen is the length of the word of a message in bytes. A short active message consists of the word and
// its data.
const WordLen = 8

// ShortActive returns the word of a short active message on the connection with the receiver's id
// ep: the upper half of ep, then the lowest 16 bits of its lower half. The caller adds the id of
// the active message. If ShortEP of the word is not ep, the id does not fit into the
// word.
func ShortActive(ep uint64) (word uint64) { return ep&^math.MaxUint32 | ep&math.MaxUint16<<16 }

// ShortEP returns the receiver's id of the connection from the word of a short active message.
func ShortEP(word uint64) uint64 { return word&^math.MaxUint32 | word>>16&math.MaxUint16 }

// ShortID returns the id of the active message from the word of a short active message.
func ShortID(word uint64) uint16 { return uint16(word) }

// HeadLen is the length of a Head, and NameLen the length of its second part, EP, both in bytes.
const (
	HeadLen = 16
	NameLen = 8
)

// Head is the beginning of every message. The word is first, because it is the header of the short
// call that sends a message.
type Head struct {
	Word uint64 // the tag; id and length of the header of an active message; offset in a stream
	EP   uint64 // the receiver's id of the connection
}

// Append appends the head.
func (h *Head) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, h.Word)
	return binary.LittleEndian.AppendUint64(b, h.EP)
}

// Unpack decodes the head and returns the bytes after it. ok is false if b is too short.
func (h *Head) Unpack(b []byte) (rest []byte, ok bool) {
	if len(b) < HeadLen {
		return nil, false
	}
	h.Word, h.EP = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	return b[HeadLen:], true
}

// PartLen is the length of a Part.
const PartLen = 16

// Part follows the head of AMTagFirst and AMActiveFirst, with the length of the
// message in bytes as Value, and the head of AMTagSync, with Value 0.
type Part struct {
	Value uint64
	ID    uint64 // the sender's id of the message
}

// Append appends the part.
func (p *Part) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, p.Value)
	return binary.LittleEndian.AppendUint64(b, p.ID)
}

// Unpack decodes the part and returns the bytes after it.
func (p *Part) Unpack(b []byte) (rest []byte, ok bool) {
	if len(b) < PartLen {
		return nil, false
	}
	p.Value, p.ID = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	return b[PartLen:], true
}

// FragLen is the length of a Frag.
const FragLen = 24

// Frag precedes a fragment of AMFrag, with the sender's id of the message as ID, and a fragment of
// AMData, with the receiver's id of the receive.
type Frag struct {
	EP, ID uint64
	Offset uint64 // offset of the fragment in the message, in bytes
}

// Append appends the encoded Frag.
func (f *Frag) Append(b []byte) []byte { return appendThree(b, f.EP, f.ID, f.Offset) }

// appendThree appends three words. It writes them in place, which takes a third of the time of three
// appends.
func appendThree(b []byte, x, y, z uint64) []byte {
	var w [24]byte
	binary.LittleEndian.PutUint64(w[:], x)
	binary.LittleEndian.PutUint64(w[8:], y)
	binary.LittleEndian.PutUint64(w[16:], z)
	return append(b, w[:]...)
}

// Unpack decodes the Frag, and returns the fragment after it.
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

// ControlWord is the length of its first word, EP, in bytes. It is the header if the Control is sent as a short message.
const ControlWord = 8

// Control is the content of AMAck, AMPutDone, AMCredit, AMStreamTaken and AMStreamEnd.
type Control struct {
	EP    uint64 // the receiver's id of the connection
	ID    uint64 // the receiver's id of the message or the receive; 0 in AMCredit; in AMStreamEnd the length of the stream in bytes
	Value uint64 // a status, the credit in bytes, or the number of bytes that were read of a stream
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

// Status returns the value as a status; StatusInternal if it is not a valid one.
func (c *Control) Status() ucs.Status {
	if c.Value > 0x7f {
		return ucs.StatusInternal
	}
	return ended(ucs.Status(c.Value))
}

// ended returns st if it is a final status, and StatusInternal otherwise.
func ended(st ucs.Status) ucs.Status {
	if st == ucs.StatusInProgress || st.Err() == ucs.ErrInternal {
		return ucs.StatusInternal
	}
	return st
}
