package tuple

import (
	"math"

	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/stats"
	"github.com/gucx/gucx/uct"
)

// Out is the messages of one tag to a peer.
//
//	usual -- enough of them --> asked -- OPENED --> open -- close --> closing -- CLOSED --> usual
type Out struct {
	s   *Sender
	tag uint64

	state outState
	count int // messages that went the usual way since the queue was closed, or there was none
	askAt int // count from which a queue is wanted
	used  uint64

	queues uct.QueueSender // of the transport that had the messages when the queue was wanted
	number uint32
	max    int           // longest message for the queue, in bytes
	conn   uct.QueueConn // nil: it has none
	busy   int           // sends that the connection has
	recall uct.Completion
	told   bool   // the receiver knows what was sent: nothing is under way any more
	sent   uint64 // messages that were given to a connection
	acked  uint64 // of these, those that were received

	first, last *Send // that were not received, in order
	unsent      *Send // the first of these that no connection was given
}

// outState is how far an Out has come.
type outState uint8

const (
	outUsual   outState = iota // messages go the usual way
	outAsked                   // a queue is wanted
	outOpen                    // messages go through the queue
	outClosing                 // messages wait until it is known which have come
)

// Usual reports that the next message goes the usual way. t may be nil.
func (t *Out) Usual() bool { return t == nil || t.state < outOpen }

// open wants a queue from the peer, if the transport has some.
func (t *Out) open() {
	s := t.s
	q, ready := s.to.Queues()
	switch {
	case !ready:
		return
	case q == nil:
		t.askAt = math.MaxInt
		return
	case s.open >= s.cfg.Max:
		s.makeRoom()
		return
	}
	t.state, t.queues = outAsked, q
	s.open++
	s.to.Tell(t.tag, wire.TupleOpen, 0, 0)
}

// opened begins with a queue, if there is one.
func (t *Out) opened(c *wire.Tuple) {
	if c.Number == 0 {
		t.later()
		return
	}
	t.state, t.number, t.max = outOpen, c.Number, int(min(c.Value, uint64(math.MaxInt)))
	t.sent, t.acked = 0, 0
	t.used = t.s.tick()
	t.s.to.Tell(t.tag, wire.TupleSwitch, c.Number, 0)
}

// later goes on the usual way, and wants a queue again after twice as many messages.
func (t *Out) later() {
	t.s.open--
	t.state, t.count, t.told = outUsual, 0, false
	if t.askAt < maxAsk {
		t.askAt *= 2
	}
}

// maxAsk is the most messages between two requests for a queue.
const maxAsk = 1 << 16

// Send sends a message through the queue. It must not go the usual way.
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

// pump gives messages to the connection as long as it takes some.
func (t *Out) pump() {
	for t.unsent != nil && t.state == outOpen {
		if t.conn == nil && !t.attach() {
			return
		}
		m := t.unsent
		m.Count, m.Status = 1, ucs.StatusOK
		switch _, err := t.conn.SendZcopy(m.iov, &m.Completion); err {
		case nil:
		case uct.ErrNoResource: // the next one that has ended goes on
			return
		default: // the connection fails, or the peer has said that its queue takes more
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

// attach takes a connection to a queue, of a tuple that has nothing under way if need be. If
// all wait for receives, then this tuple does not wait for them, nor for the connections:
// it goes the usual way.
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

// pop takes out the first message, which was received.
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

// close leaves the queue; why counts that. What has not been received is taken back.
func (t *Out) close(why *stats.Counter) {
	if t.state != outOpen || t.s.dead != ucs.StatusOK {
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

// recalled tells the receiver what it may have got.
func (t *Out) recalled() {
	if t.s.dead == ucs.StatusOK {
		t.told = true
		t.s.to.Tell(t.tag, wire.TupleStopped, t.number, t.sent)
	}
}

// closed goes on the usual way: got messages have come, the others are sent again, each
// with its place among those that went the usual way meanwhile.
func (t *Out) closed(got uint64) {
	for ; t.acked < got; t.acked++ {
		t.pop().end(ucs.StatusOK)
	}
	m := t.first
	t.first, t.last, t.unsent = nil, nil, nil
	t.later()
	for m != nil {
		next := m.next
		if m.owner.GivenUp() {
			m.end(ucs.StatusCanceled)
		} else {
			t.s.to.Tell(t.tag, wire.TupleNext, t.number, uint64(m.place))
			m.again()
		}
		m = next
	}
	t.s.to.Tell(t.tag, wire.TupleResent, t.number, 0)
}
