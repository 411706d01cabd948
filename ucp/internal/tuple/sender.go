package tuple

import (
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Target is the connection of a Sender.
type Target interface {
	Peer
	// Queues returns the interface to the peer's queues of the transport that messages use now;
	// nil if it has none. Its values can be compared. It returns false if no queue can be requested now.
	Queues() (q uct.QueueSender, ready bool)
	// MessagesWait reports whether messages wait that go the usual way. Control messages do not wait for them.
	MessagesWait() bool
	// FirstWaiting returns the place of the first tagged message that waits; NoPlace if none waits.
	FirstWaiting() SendPlace
	// Covers reports whether the peer has credit for all messages in queues.
	Covers() bool
	// Requeued is called after calls of Request.Requeue, whose places increase. The messages are sent when it is their turn.
	Requeued()
}

// Sender decides for each tagged message of a connection whether it goes the usual way or
// through a queue. Init makes it ready.
type Sender struct {
	to    Target
	cfg   *Config
	stats *Stats

	out     table[*Out]
	open    int         // number of tags whose queue is open or requested
	usual   uint64      // tagged messages that went the usual way; each has a number
	sent    SendPlace   // of the latest message that was sent the usual way in its turn, or again with its place
	covered SendPlace   // the peer has credit for the messages in queues up to this one
	turns   turns       // messages that the receiver does not count, and others that it counts
	nexts   []SendPlace // of NEXT messages that were not sent yet, in order
	roomAt  uint64      // value of usual at which makeRoom tries again to evict a tuple
	through uint64      // number of the latest message through a queue; its lower throughBits are not 0
	clock   uint64      // counts uses of tuples, for eviction
	dead    ucs.Status  // why the connection has ended
}

// Init initializes the sender of a connection.
func (s *Sender) Init(to Target, cfg *Config, stats *Stats) { s.to, s.cfg, s.stats = to, cfg, stats }

// Find returns the state of a tag; nil if there is none.
func (s *Sender) Find(tag uint64) *Out { return s.out.find(tag) }

// NextUsual returns the place of the next message that goes the usual way.
func (s *Sender) NextUsual() SendPlace { return SendPlace{usual: s.usual + 1} }

// Sent is called when a message of the usual way is sent in its turn: the peer has credit for it and for all messages in
// queues.
func (s *Sender) Sent(at SendPlace) {
	s.advance(at)
	s.Cover()
}

// advance records that the message with that place was sent, unless a later one was.
func (s *Sender) advance(at SendPlace) {
	if at.After(s.sent) {
		s.sent = at
	}
}

// Cover is called when the peer has credit for all messages in queues.
func (s *Sender) Cover() { s.covered = SendPlace{s.usual, s.through} }

// firstRequest is the number of the message of a tag with which the sender requests a queue: not the first, as many
// tags are used once.
const firstRequest = 2

// countedTags is the number of tags with counters, for each tag that may have a queue.
const countedTags = 4

// WentUsual counts a message that went the usual way; t is the result of Find. After enough
// messages it requests a queue for the next ones.
func (s *Sender) WentUsual(t *Out, tag uint64) {
	s.usual++
	if t == nil {
		if s.out.n >= countedTags*s.cfg.Max {
			s.forget()
		}
		t = &Out{s: s, tag: tag, requestAt: firstRequest}
		t.recall.Func = func(*uct.Completion) { t.recalled() }
		s.out.add(tag, t)
	}
	switch t.count++; {
	case t.state == outUsual && t.count >= t.requestAt:
		t.open()
	case t.state == outOffered:
		t.switchOver()
	}
}

// forget drops the counters of tags that have no queue.
func (s *Sender) forget() {
	var old table[*Out]
	old, s.out = s.out, old
	old.all(func(tag uint64, t *Out) bool {
		if t.state != outUsual {
			s.out.add(tag, t)
		}
		return true
	})
}

// Uncount is called when a message of the usual way with that place does not arrive in its turn: it was canceled before it was
// sent, or was sent out of turn. The receiver does not count it.
func (s *Sender) Uncount(at SendPlace) {
	s.turns.makeRoom(s)
	if at.through != 0 {
		s.turns.remove(at)
		return
	}
	s.turns.skip(at.usual)
}

// takeTurn makes a message of a queue one of the usual way: it is sent in its turn, and the receiver counts it.
func (s *Sender) takeTurn(m *Send) {
	s.turns.makeRoom(s)
	s.turns.insert(m.place)
	m.requeue()
}

// firstPlace returns a number of the usual way that precedes all messages of queues that may be sent again.
func (s *Sender) firstPlace() uint64 {
	if len(s.nexts) > 0 {
		return 0
	}
	first := s.usual
	s.out.all(func(_ uint64, t *Out) bool {
		if t.first != nil {
			first = min(first, t.first.place.usual)
		}
		return true
	})
	return first
}

// PlaceToSend returns the place for the first NEXT that was not sent yet, if it is sent now. It is the value of that NEXT;
// SendControl got 0.
func (s *Sender) PlaceToSend() Place {
	at := s.nexts[0]
	return newPlace(s.turns.count(at), uint32(at.through%(1<<throughBits)))
}

// NextSent is called when the first NEXT that was not sent yet was sent.
func (s *Sender) NextSent() { s.nexts = s.nexts[1:] }

// makeRoom evicts a tuple for a tag that requests a queue. Such a tag calls it with each message, so
// on average it compares the tags no more often than each of them has a message.
func (s *Sender) makeRoom() {
	if s.usual >= s.roomAt {
		s.roomAt = s.usual + uint64(s.out.n)
		s.evict()
	}
}

// evict closes the least recently used tuple that has nothing in flight,
// unless another one is being closed.
func (s *Sender) evict() {
	var oldest *Out
	closing := false
	s.out.all(func(_ uint64, t *Out) bool {
		closing = t.state == outClosing
		if t.state == outOpen && t.first == nil && (oldest == nil || t.used < oldest.used) {
			oldest = t
		}
		return !closing
	})
	if oldest != nil && !closing {
		oldest.close(&s.stats.evicted)
	}
}

// detach detaches the least recently used connection of a transport.
func (s *Sender) detach(queues uct.QueueSender) bool {
	var oldest *Out
	s.out.all(func(_ uint64, t *Out) bool {
		if t.conn != nil && t.queues == queues && t.busy == 0 && t.state == outOpen && (oldest == nil || t.used < oldest.used) {
			oldest = t
		}
		return true
	})
	if oldest == nil || oldest.conn.Detach() != nil {
		return false
	}
	oldest.conn = nil
	return true
}

// Take handles a control message of the receiver. It returns false if the message is not
// valid.
func (s *Sender) Take(c *wire.Tuple) bool {
	t := s.out.find(c.Tag)
	switch {
	case t == nil:
		return false
	case c.Kind == wire.TupleOpened && t.state == outRequested:
		t.opened(c)
	case c.Kind == wire.TupleStop && t.number == c.Number && t.state >= outOffered:
		t.close(nil)
	case c.Kind == wire.TupleClosed && t.number == c.Number && t.reported && c.Value >= t.acked && c.Value <= t.sent:
		t.closed(c.Value)
	default:
		return false
	}
	return true
}

// Cancel recalls the messages of a tag that were not received, and completes those
// that their owners have given up.
func (s *Sender) Cancel(tag uint64) {
	if t := s.out.find(tag); t != nil {
		t.close(&s.stats.canceled)
	}
}

// End completes the messages through queues of a connection that ends with st. Messages that a
// transport uses complete when it releases them.
func (s *Sender) End(st ucs.Status) {
	if s.dead != ucs.StatusOK {
		return
	}
	s.dead = st
	var rest []*Send
	s.out.all(func(_ uint64, t *Out) bool {
		for m := t.first; m != nil; m = m.next {
			if !m.busy {
				rest = append(rest, m)
			}
		}
		t.first, t.last, t.unsent, t.conn = nil, nil, nil, nil
		return true
	})
	for _, m := range rest {
		m.end(st)
	}
}

// Waiting returns the number of messages that wait for receives of the peer, and whether no queue is being
// opened or closed.
func (s *Sender) Waiting() (n int, steady bool) {
	steady = true
	s.out.all(func(_ uint64, t *Out) bool {
		steady = steady && t.state != outRequested && t.state != outClosing
		for m := t.first; m != nil; m = m.next {
			n++
		}
		return true
	})
	return n, steady
}

// nextPlace returns the place of the next message through a queue.
func (s *Sender) nextPlace() SendPlace {
	if s.through++; s.through%(1<<throughBits) == 0 {
		s.through++
	}
	return SendPlace{s.usual, s.through}
}

// tick returns the next time stamp for eviction.
func (s *Sender) tick() uint64 {
	s.clock++
	return s.clock
}
