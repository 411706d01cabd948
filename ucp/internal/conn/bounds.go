package conn

// Bounds of what untrusted peers may make a worker keep.
const (
	// MaxHalfOpen bounds the connections that peers have asked for and of which no lane
	// has come about. What comes beyond waits for a second; see Late.
	MaxHalfOpen = 1024
	// MaxAnswers bounds the answers that wait for one peer to take them: more than the
	// atomics that it can have under way.
	MaxAnswers = 8192
	// maxInbox bounds the messages between two calls of Progress.
	maxInbox = 4096
)

// Inbox has the handshake messages that arrived since the last progress: handling one
// makes and closes endpoints of the transport that delivers it.
type Inbox struct{ msgs [][]byte }

// Add copies a message. It reports false, and drops it, if there is no room.
func (b *Inbox) Add(msg []byte) bool {
	if len(b.msgs) >= maxInbox {
		return false
	}
	b.msgs = append(b.msgs, append([]byte(nil), msg...))
	return true
}

// Take empties the box.
func (b *Inbox) Take() (msgs [][]byte) {
	msgs, b.msgs = b.msgs, nil
	return msgs
}
