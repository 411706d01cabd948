package wire

import "encoding/binary"

// RTSLen is the length of an RTS without its key.
const RTSLen = 32

// RTS follows the head of AMTagRTS and AMActiveRTS. In AMActiveRTS the header of the active message follows the key;
// docs/wire.md, "Rendezvous".
type RTS struct {
	ID     uint64 // the sender's id of the message
	Length uint64 // length of the data in bytes
	Addr   uint64 // address of the data, if there is a key
	Key    []byte // packed key for the data; empty if the receiver cannot get the data
}

// Append appends the RTS.
func (m *RTS) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(appendThree(b, m.ID, m.Length, m.Addr), uint64(len(m.Key)))
	return append(b, m.Key...)
}

// Unpack decodes the RTS and returns the bytes after it. ok is false if b is too short. Key refers to b.
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

// RTR is the content of AMRTR.
type RTR struct {
	EP     uint64 // the receiver's id of the connection
	ID     uint64 // the sender's id of the message, from its RTS
	Recv   uint64 // id of the receive at the side that sends the RTR
	Length uint64 // number of requested bytes, from the start of the data
	Addr   uint64 // address to which the data must be put, if there is a key
	Key    []byte // packed key for Addr; empty if the data must be sent in AMData
}

// Append appends the message.
func (m *RTR) Append(b []byte) []byte {
	for _, v := range [...]uint64{m.EP, m.ID, m.Recv, m.Length, m.Addr} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return append(b, m.Key...)
}

// Unpack decodes a message and reports whether it has the right length. Key refers to b.
func (m *RTR) Unpack(b []byte) bool {
	if len(b) < RTRLen || len(b) > RTRLen+maxKeyLen {
		return false
	}
	le := binary.LittleEndian
	m.EP, m.ID, m.Recv, m.Length, m.Addr = le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:]), le.Uint64(b[32:])
	m.Key = b[RTRLen:]
	return true
}
