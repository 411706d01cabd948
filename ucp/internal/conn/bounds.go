package conn

// Limits of memory that untrusted peers can make a worker use.
const (
	// MaxReplies limits the replies that wait to be sent to one peer: more than the
	// atomics that it can have in flight.
	MaxReplies = 8192
	// maxInbox and maxInboxLen limit the messages between two calls of Progress, and their bytes.
	maxInbox    = 4096
	maxInboxLen = 4 << 20
)

// Inbox queues the handshake messages that arrived since the last progress. They are not handled in the handler of the
// transport, because handling them makes and closes endpoints of that transport.
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

// Take removes and returns all messages.
func (b *Inbox) Take() (msgs [][]byte) {
	msgs, b.msgs, b.len = b.msgs, nil, 0
	return msgs
}
