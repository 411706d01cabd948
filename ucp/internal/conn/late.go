package conn

import "time"

// Late has requests for a connection that found too many half open, in the order in which they
// came: they are worked off when there is room. The zero value is empty.
type Late struct {
	list  []lateMsg
	head  int // of list
	bytes int
}

// lateMsg is a message, and when it came.
type lateMsg struct {
	at  time.Duration
	msg []byte
}

const (
	// maxLate bounds the messages that are kept, in bytes: some 10,000 of workers with a handful
	// of transports.
	maxLate = 4 << 20
	// lateFor is how long they are kept: by then who is still there asks again. So what untrusted
	// peers have left behind does not go before those who are there.
	lateFor = time.Second
)

// Empty reports that there are none.
func (l *Late) Empty() bool { return l.head == len(l.list) }

// Add keeps a message, which is the box's then. It drops it if there is no room.
func (l *Late) Add(now time.Duration, msg []byte) {
	if l.bytes+len(msg) > maxLate {
		return
	}
	l.bytes += len(msg)
	l.list = append(l.list, lateMsg{now, msg})
}

// Next takes the oldest message that is not too old; nil if there is none.
func (l *Late) Next(now time.Duration) []byte {
	for !l.Empty() {
		m := l.list[l.head]
		l.list[l.head] = lateMsg{}
		l.bytes -= len(m.msg)
		if l.head++; l.Empty() {
			l.list, l.head = nil, 0
		}
		if now-m.at < lateFor {
			return m.msg
		}
	}
	return nil
}
