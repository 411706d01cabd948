package wire

import "encoding/binary"

// RTSLen is the length of an RTS without its key.
const RTSLen = 32

// RTS follows the head of AMTagRTS and AMActiveRTS, and the header of an active message
// follows the key; docs/wire.md, "Rendezvous".
type RTS struct {
	ID     uint64 // the sender's name of the message
	Length uint64 // of the data
	Addr   uint64 // of the data, if there is a key
	Key    []byte // opens the data; empty if it cannot be got
}

// Append appends the announcement.
func (m *RTS) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(appendThree(b, m.ID, m.Length, m.Addr), uint64(len(m.Key)))
	return append(b, m.Key...)
}

// Unpack decodes the announcement and returns what follows it. It reports whether all of
// it is there. The key is a part of b.
func (m *RTS) Unpack(b []byte) (rest []byte, ok bool) {
	if len(b) < RTSLen {
		return nil, false
	}
	le := binary.LittleEndian
	m.ID, m.Length, m.Addr = le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:])
	n := le.Uint64(b[24:])
	if b = b[RTSLen:]; n > uint64(len(b)) || n > maxKeyLen {
		return nil, false
	}
	m.Key = b[:n:n]
	return b[n:], true
}

// RTRLen is the length of an RTR without its key.
const RTRLen = 40

// RTR is all of AMRTR.
type RTR struct {
	EP     uint64 // the receiver's name of the connection
	ID     uint64 // the sender's name of the message, as in its RTS
	Recv   uint64 // the receiver's name of the receive
	Length uint64 // of the data that is wanted, from the start of the message
	Addr   uint64 // where it is wanted, if there is a key
	Key    []byte // opens that; empty if the data is to come in AMData
}

// Append appends the message.
func (m *RTR) Append(b []byte) []byte {
	for _, v := range [...]uint64{m.EP, m.ID, m.Recv, m.Length, m.Addr} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return append(b, m.Key...)
}

// Unpack decodes a message and reports whether all of it is there. The key is a part of b.
func (m *RTR) Unpack(b []byte) bool {
	if len(b) < RTRLen || len(b) > RTRLen+maxKeyLen {
		return false
	}
	le := binary.LittleEndian
	m.EP, m.ID, m.Recv, m.Length, m.Addr = le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:]), le.Uint64(b[32:])
	m.Key = b[RTRLen:]
	return true
}
