package conn

import "time"

// Late queues REQUESTs that arrived while HalfOpen had no room. Each source has a queue of its
// own. The zero value is empty.
type Late struct {
	queues []*lateQueue // in the order in which Next checks them
	of     map[Source]*lateQueue
	hosts  map[string]int // bytes
	bytes  int
}

type lateQueue struct {
	from Source
	msgs []lateMsg
}

type lateMsg struct {
	at  time.Duration
	msg []byte
}

const (
	// maxLate limits the bytes of queued messages: some 10,000 messages of workers with a handful
	// of transports.
	maxLate = 4 << 20
	// maxLateHost limits the bytes of one host.
	maxLateHost = maxLate / 2
	// lateFor is the maximum time that a message waits. In this time a live sender has sent it again.
	lateFor = time.Second
	// lateLooks limits the queues that one call of Next checks.
	lateLooks = 64
)

// Empty reports whether no message is queued.
func (l *Late) Empty() bool { return len(l.queues) == 0 }

// Add queues a message, which then belongs to l. It drops the message at the limits.
func (l *Late) Add(from Source, now time.Duration, msg []byte) {
	if l.bytes+len(msg) > maxLate || l.hosts[from.Host]+len(msg) > maxLateHost {
		return
	}
	if l.of == nil {
		l.of, l.hosts = map[Source]*lateQueue{}, map[string]int{}
	}
	q := l.of[from]
	if q == nil {
		q = &lateQueue{from: from}
		l.of[from] = q
		l.queues = append(l.queues, q)
	}
	q.msgs = append(q.msgs, lateMsg{now, msg})
	l.bytes += len(msg)
	l.hosts[from.Host] += len(msg)
}

// Next returns the next message of a source that has room; nil if it finds none. Sources take turns.
// It drops messages that have waited for lateFor.
func (l *Late) Next(now time.Duration, room func(Source) bool) []byte {
	for range min(len(l.queues), lateLooks) {
		q := l.queues[0]
		l.queues = l.queues[1:]
		for len(q.msgs) > 0 && now-q.msgs[0].at >= lateFor {
			l.take(q)
		}
		var msg []byte
		if len(q.msgs) > 0 && room(q.from) {
			msg = l.take(q)
		}
		if len(q.msgs) > 0 {
			l.queues = append(l.queues, q)
		} else {
			delete(l.of, q.from)
		}
		if l.Empty() {
			*l = Late{}
		}
		if msg != nil {
			return msg
		}
	}
	return nil
}

// take removes the first message of a queue.
func (l *Late) take(q *lateQueue) []byte {
	msg := q.msgs[0].msg
	q.msgs[0] = lateMsg{}
	q.msgs = q.msgs[1:]
	l.bytes -= len(msg)
	if l.hosts[q.from.Host] -= len(msg); l.hosts[q.from.Host] == 0 {
		delete(l.hosts, q.from.Host)
	}
	return msg
}
