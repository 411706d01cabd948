package tuple

import (
	"math"

	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/stats"
	"github.com/gucx/gucx/uct"
)

// Out is the sender's state for the messages of one tag to a peer.
//
//	usual -- enough messages --> requested -- OPENED --> offered -- no message waits --> open -- close --> closing -- CLOSED --> usual
type Out struct {
	s   *Sender
	tag uint64

	state     outState
	count     int // messages that went the usual way since the queue was closed, or ever
	requestAt int // value of count at which the sender requests a queue
	used      uint64

	queues   uct.QueueSender // of the transport that carried messages when the sender requested the queue
	number   uint32
	max      int           // maximum message length of the queue, in bytes
	conn     uct.QueueConn // nil: no connection is attached
	busy     int           // sends posted to the connection
	recall   uct.Completion
	reported bool   // the receiver knows the number of messages: none is in flight any more
	sent     uint64 // messages posted to a connection
	acked    uint64 // of these, messages that were received

	first, last *Send // sends that were not received, in order
	unsent      *Send // the first of these that was not posted
}

// outState is the state of an Out.
type outState uint8

const (
	outUsual     outState = iota // messages go the usual way
	outRequested                 // the sender has requested a queue
	outOffered                   // the receiver has opened a queue, but messages wait that went the usual way
	outOpen                      // messages go through the queue
	outClosing                   // messages wait until it is known which ones have arrived
)

// Usual reports whether the next message goes the usual way. t may be nil.
func (t *Out) Usual() bool { return t == nil || t.state < outOpen }

// open requests a queue of the peer, if the transport has queues.
func (t *Out) open() {
	s := t.s
	q, ready := s.to.Queues()
	switch {
	case !ready:
		return
	case q == nil:
		t.requestAt = math.MaxInt
		return
	case s.open >= s.cfg.Max:
		s.makeRoom()
		return
	}
	t.state, t.queues = outRequested, q
	s.open++
	s.to.SendControl(t.tag, wire.TupleOpen, 0, 0)
}

// opened handles the reply to open: the peer has opened a queue, or none.
func (t *Out) opened(c *wire.Tuple) {
	if c.Number == 0 {
		t.backOff()
		return
	}
	t.state, t.number, t.max = outOffered, c.Number, int(min(c.Value, uint64(math.MaxInt)))
	t.sent, t.acked = 0, 0
	t.used = t.s.tick()
	t.switchOver()
}

// switchOver makes later messages use the queue, unless earlier messages wait: SWITCH would wait behind them, possibly until the
// receiver has received messages of other tags, and the receiver posts nothing to the queue before.
func (t *Out) switchOver() {
	if t.s.to.MessagesWait() {
		return
	}
	t.state = outOpen
	t.s.to.SendControl(t.tag, wire.TupleSwitch, t.number, 0)
}

// backOff returns to the usual way. The next request for a queue follows after twice as many messages.
func (t *Out) backOff() {
	t.s.open--
	t.state, t.count, t.reported = outUsual, 0, false
	if t.requestAt < maxRequestInterval {
		t.requestAt *= 2
	}
}

// maxRequestInterval is the maximum number of messages between two requests for a queue.
const maxRequestInterval = 1 << 16

// Send sends a message through the queue. Usual must be false.
func (t *Out) Send(m *Send) {
	s := t.s
	m.t, m.place = t, s.nextPlace()
	if t.last == nil {
		t.first = m
	} else {
		t.last.next = m
	}
	t.last = m
	if t.unsent == nil {
		t.unsent = m
	}
	t.used = s.tick()
	if t.state != outOpen {
		return
	}
	if iov, ok := m.owner.Pieces(t.max); ok {
		m.iov = iov
		t.pump()
	} else {
		t.close(&s.stats.long)
	}
}

// pump posts messages until the connection has no room.
func (t *Out) pump() {
	for t.unsent != nil && t.state == outOpen {
		if t.conn == nil && !t.attach() {
			return
		}
		m := t.unsent
		m.Count, m.Status = 1, ucs.StatusOK
		switch _, err := t.conn.SendZcopy(m.iov, &m.Completion); err {
		case nil:
		case uct.ErrNoResource: // the next completion continues
			return
		default: // the connection fails, or the peer announced more than its queue accepts
			t.close(&t.s.stats.long)
			return
		}
		t.s.stats.sends.Inc()
		m.busy = true
		t.busy++
		t.sent++
		t.unsent = m.next
	}
}

// attach attaches a connection to the queue. If all are attached, it detaches one of a tuple with nothing in flight. If
// the messages of all connections wait for receives, the tuple does not wait for a connection: it returns to the
// usual way.
func (t *Out) attach() bool {
	for {
		c, err := t.queues.Attach(t.number)
		if err == nil {
			t.conn = c
			return true
		}
		if err != uct.ErrBusy || !t.s.detach(t.queues) {
			t.close(&t.s.stats.busy)
			return false
		}
	}
}

// pop removes the first message, which was received.
func (t *Out) pop() *Send {
	m := t.first
	if t.first = m.next; t.first == nil {
		t.last = nil
	}
	if t.unsent == m {
		t.unsent = t.first
	}
	return m
}

// close starts closing the queue and counts the reason in why. It recalls the messages that were not received.
func (t *Out) close(why *stats.Counter) {
	if t.state != outOpen && t.state != outOffered || t.s.dead != ucs.StatusOK {
		return
	}
	if why != nil {
		why.Inc()
	}
	t.state = outClosing
	if t.conn == nil {
		t.recalled()
		return
	}
	t.recall.Count, t.recall.Status = 1, ucs.StatusOK
	pending, err := t.conn.Recall(&t.recall)
	t.conn = nil
	if err == nil && !pending {
		t.recalled()
	}
}

// recalled sends the receiver the number of messages that it may have received.
func (t *Out) recalled() {
	if t.s.dead == ucs.StatusOK {
		t.reported = true
		t.s.to.SendControl(t.tag, wire.TupleStopped, t.number, t.sent)
	}
}

// closed returns to the usual way: the receiver has received got messages. The others are sent again. Messages that precede a
// sent message are sent now, each with its place, because the receiver may have that one. The peer has credit for them. If
// messages wait, such as a stream, the messages for which the peer has credit and that precede all tagged messages that wait are
// sent now too. The others wait in their order.
func (t *Out) closed(got uint64) {
	for ; t.acked < got; t.acked++ {
		t.pop().end(ucs.StatusOK)
	}
	m, s := t.first, t.s
	t.first, t.last, t.unsent = nil, nil, nil
	t.backOff()
	for first := s.firstWaiting(); m != nil && (s.sent.After(m.place) || first.After(m.place) && !m.place.After(s.covered)); {
		m = m.leave(t.sendAgain)
	}
	s.to.SendControl(t.tag, wire.TupleResent, t.number, 0)
	if m == nil {
		return
	}
	for m != nil {
		m = m.leave(s.takeTurn)
	}
	s.to.Requeued()
}

// firstWaiting returns the place of the first tagged message that waits; NoPlace if only others wait, such as a stream, and the
// zero value if nothing waits.
func (s *Sender) firstWaiting() SendPlace {
	if !s.to.MessagesWait() {
		return SendPlace{}
	}
	if s.to.Covers() {
		s.Cover()
	}
	return s.to.FirstWaiting()
}

// sendAgain sends a message with its place. Messages of other queues that precede it must precede it at the receiver too.
func (t *Out) sendAgain(m *Send) {
	s := t.s
	s.nexts = append(s.nexts, m.place)
	s.advance(m.place)
	s.to.SendControl(t.tag, wire.TupleNext, t.number, 0)
	m.again()
}

// leave sends a message of a closed queue again, unless the owner has given it up. It returns the next one.
func (m *Send) leave(again func(*Send)) (next *Send) {
	next = m.next
	if m.owner.GivenUp() {
		m.end(ucs.StatusCanceled)
	} else {
		again(m)
	}
	return next
}
