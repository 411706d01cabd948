package wire

import "encoding/binary"

// AMNotify is the active message that follows the data of a put with notification.
const AMNotify = 3

// NotifyLen is the length of a Notify in bytes.
const NotifyLen = 16

// Notify is the content of AMNotify: the word of a put with notification; docs/wire.md, "Notifications".
type Notify struct {
	EP   uint64 // the receiver's id of the connection
	Word uint64
}

// Append appends the message.
func (m *Notify) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, m.EP)
	return binary.LittleEndian.AppendUint64(b, m.Word)
}

// Unpack decodes a message and reports whether it has the right length.
func (m *Notify) Unpack(b []byte) bool {
	if len(b) != NotifyLen {
		return false
	}
	m.EP, m.Word = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	return true
}
