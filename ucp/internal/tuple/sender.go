package tuple

import (
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Target is the connection that a Sender sends over.
type Target interface {
	Peer
	// Queues is how queues of the peer are reached over the transport that messages take now;
	// nil if that has none. Its values can be compared. It reports false while nothing can be asked of the peer.
	Queues() (q uct.QueueSender, ready bool)
}

// Sender decides for each tagged message of a connection whether it goes the usual way or
// through a queue. Init makes it ready.
type Sender struct {
	to    Target
	cfg   *Config
	stats *Stats

	out     table[*Out]
	open    int        // of these, those that are open or are to be
	usual   uint64     // tagged messages that went the usual way
	roomAt  uint64     // value of usual from which makeRoom looks again
	through uint32     // number of the latest one that went through a queue; never 0
	clock   uint64     // of the use of tuples
	dead    ucs.Status // why nothing goes on any more
}

// Init makes the sender of a connection ready.
func (s *Sender) Init(to Target, cfg *Config, stats *Stats) { s.to, s.cfg, s.stats = to, cfg, stats }

// Find is what is known of the messages of a tag; nil if that is nothing.
func (s *Sender) Find(tag uint64) *Out { return s.out.find(tag) }

// NextUsual is the number of the next message that goes the usual way.
func (s *Sender) NextUsual() uint64 { return s.usual + 1 }

// firstAsk is with which of its messages a tag gets a queue: not with the first, as many
// tags are used once.
const firstAsk = 2

// countedTags is of how many tags messages are counted, for each that may have a queue.
const countedTags = 4

// WentUsual counts a message that went the usual way, t of which is what Find has returned,
// and wants a queue for the next ones if there are enough.
func (s *Sender) WentUsual(t *Out, tag uint64) {
	s.usual++
	if t == nil {
		if s.out.n >= countedTags*s.cfg.Max {
			s.forget()
		}
		t = &Out{s: s, tag: tag, askAt: firstAsk}
		t.recall.Func = func(*uct.Completion) { t.recalled() }
		s.out.add(tag, t)
	}
	if t.count++; t.state == outUsual && t.count >= t.askAt {
		t.open()
	}
}

// forget drops the counts of tags that have no queue.
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

// Uncount is called when the number-th message of the usual way was not sent after all: those
// after it have come closer.
func (s *Sender) Uncount(number uint64) {
	s.usual--
	s.out.all(func(_ uint64, t *Out) bool {
		for m := t.first; m != nil; m = m.next {
			m.place = m.place.Without(number)
		}
		return true
	})
}

// makeRoom evicts a tuple for a tag that wants a queue. Such a tag calls it with each message, so it
// looks at the tags no more often than there are messages for each of them.
func (s *Sender) makeRoom() {
	if s.usual >= s.roomAt {
		s.roomAt = s.usual + uint64(s.out.n)
		s.evict()
	}
}

// evict closes the tuple that was not used for the longest time and has nothing under way,
// unless one is being closed.
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

// detach gives the connection back that was not used for the longest time, of a transport.
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

// Take handles what the receiver tells of a queue. It reports false for what makes no
// sense.
func (s *Sender) Take(c *wire.Tuple) bool {
	t := s.out.find(c.Tag)
	switch {
	case t == nil:
		return false
	case c.Kind == wire.TupleOpened && t.state == outAsked:
		t.opened(c)
	case c.Kind == wire.TupleStop && t.number == c.Number && t.state >= outOpen:
		t.close(nil)
	case c.Kind == wire.TupleClosed && t.number == c.Number && t.told && c.Value >= t.acked && c.Value <= t.sent:
		t.closed(c.Value)
	default:
		return false
	}
	return true
}

// Cancel has the messages of a tag taken back that have not been received, and those ended
// that their owners have given up.
func (s *Sender) Cancel(tag uint64) {
	if t := s.out.find(tag); t != nil {
		t.close(&s.stats.canceled)
	}
}

// End ends what goes through queues of a connection whose operations end with st. What a
// transport has ends when that lets go.
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

// Waiting is how many messages wait for a receive of the peer, and whether no queue comes or
// goes.
func (s *Sender) Waiting() (n int, steady bool) {
	steady = true
	s.out.all(func(_ uint64, t *Out) bool {
		steady = steady && (t.state == outUsual || t.state == outOpen)
		for m := t.first; m != nil; m = m.next {
			n++
		}
		return true
	})
	return n, steady
}

// nextPlace is the place of the next message through a queue.
func (s *Sender) nextPlace() Place {
	if s.through++; s.through == 1<<throughBits {
		s.through = 1
	}
	return newPlace(s.usual, s.through)
}

// tick is the time for what was used last.
func (s *Sender) tick() uint64 {
	s.clock++
	return s.clock
}
