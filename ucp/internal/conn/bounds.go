package conn

// Bounds of what untrusted peers may make a worker keep.
const (
	// MaxAnswers bounds the answers that wait for one peer to take them: more than the
	// atomics that it can have under way.
	MaxAnswers = 8192
	// maxInbox and maxInboxLen bound the messages between two calls of Progress, and their bytes.
	maxInbox    = 4096
	maxInboxLen = 4 << 20
)

// Inbox has the handshake messages that arrived since the last progress: handling one
// makes and closes endpoints of the transport that delivers it.
type Inbox struct {
	msgs [][]byte
	len  int // bytes
}

// Add copies a message. It reports false, and drops it, if there is no room.
func (b *Inbox) Add(msg []byte) bool {
	if len(b.msgs) >= maxInbox || b.len+len(msg) > maxInboxLen {
		return false
	}
	b.len += len(msg)
	b.msgs = append(b.msgs, append([]byte(nil), msg...))
	return true
}

// Take empties the box.
func (b *Inbox) Take() (msgs [][]byte) {
	msgs, b.msgs, b.len = b.msgs, nil, 0
	return msgs
}
