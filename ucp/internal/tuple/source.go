package tuple

import (
	"slices"

	"github.com/gucx/gucx/ucp/internal/match"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/uct"
)

// Conn is the connection of a Source. All its queues at a time are of one
// transport.
type Conn[R, M any] interface {
	Peer
	// QueueAttr returns the queue attributes of its transport; nil if no queue may be opened now.
	QueueAttr() *uct.QueueAttr
	// NewQueue opens a queue for depth receives; CloseQueue closes it.
	NewQueue(depth int) (uct.Queue, error)
	CloseQueue(q uct.Queue)
	// Prepare makes a receive ready for a queue of the connection, and returns its record; nil if
	// no queue accepts it. Later Received is called, for a message of n bytes, or Returned. Returned
	// returns false if that completed the receive, as it was canceled.
	Prepare(v R) *Recv[R, M]
	Received(v R, n int)
	Returned(v R) bool
	// LastUnexpected returns the latest unexpected message of the connection; nil if there is none.
	LastUnexpected() *match.Msg[M]
	// Fail fails the connection because the peer violates the protocol.
	Fail(why string)
}

// Source is the receiver's state of the tagged messages of a connection. Init
// makes it ready.
type Source[R, M any] struct {
	x    *Receiver[R, M]
	conn Conn[R, M]

	usual uint64 // tagged messages that arrived the usual way
	next  Place  // of the next message if it is one that is sent again; otherwise 0
	in    []*in[R, M]
	steps uint64 // messages compared to order those that were sent again
}

// Init initializes the source of a connection.
func (s *Source[R, M]) Init(x *Receiver[R, M], conn Conn[R, M]) { s.x, s.conn = x, conn }

// Take handles a control message of the sender. It returns false if the message is not valid.
func (s *Source[R, M]) Take(c *wire.Tuple) bool {
	switch c.Kind {
	case wire.TupleOpen:
		s.offer(c.Tag)
		return true
	case wire.TupleNext, wire.TupleResent:
		s.next = 0 // the last one was canceled before it was sent again
	}
	t := s.x.in.find(c.Tag)
	return t != nil && t.from == s && t.take(c)
}

// offer opens a queue that a peer requested, unless a rule forbids it.
func (s *Source[R, M]) offer(tag uint64) {
	t, most := s.newQueue(tag)
	if t == nil {
		s.x.stats.refused.Inc()
		s.conn.SendControl(tag, wire.TupleOpened, 0, 0)
		return
	}
	s.x.stats.opened.Inc()
	s.conn.SendControl(tag, wire.TupleOpened, t.q.Number(), uint64(most))
}

// maxQueueDepth is the maximum number of receives posted to a queue; others wait in the backlog.
const maxQueueDepth = 128

// newQueue opens a queue for messages of at most most bytes; nil if no queue may be opened now.
func (s *Source[R, M]) newQueue(tag uint64) (t *in[R, M], most int) {
	x, a := s.x, s.conn.QueueAttr()
	if a == nil || x.paused || x.in.find(tag) != nil || x.fitsAny(tag) {
		return nil, 0
	}
	if x.in.n >= min(x.cfg.Max, a.MaxQueues) {
		x.evict()
		return nil, 0
	}
	q, err := s.conn.NewQueue(min(maxQueueDepth, a.MaxDepth))
	if err != nil {
		return nil, 0
	}
	t = &in[R, M]{from: s, tag: tag, q: q, used: x.tick()}
	x.in.add(tag, t)
	s.in = append(s.in, t)
	return t, min(x.cfg.MaxMessage, a.MaxMessage)
}

// BeforeArrival is called before a message of the tag that arrived the usual way is handled. It closes the queue that
// another sender has for the tag.
func (s *Source[R, M]) BeforeArrival(tag uint64) {
	if t := s.rival(tag); t != nil && t.state == inOpen {
		t.stop(&s.x.stats.others)
	}
}

// rival returns the queue that another sender has for the tag; nil if there is none.
func (s *Source[R, M]) rival(tag uint64) *in[R, M] {
	if t := s.x.in.find(tag); t != nil && t.from != s {
		return t
	}
	return nil
}

// Waits is called when the sender has reported a message of the tag that it cannot send yet. It closes the queue that
// another sender has for the tag, also if that sender does not use it yet.
func (s *Source[R, M]) Waits(tag uint64) {
	s.BeforeArrival(tag)
	if t := s.rival(tag); t != nil && t.state == inOffered {
		t.contested = true
	}
}

// Competes reports whether other senders have queues, which BeforeArrival may close.
func (s *Source[R, M]) Competes() bool { return s.x.in.n > len(s.in) }

// AfterArrival is called after a message that arrived the usual way was handled. n is its node if it
// is unexpected, else nil. An unexpected message gets its place among those of its sender.
func (s *Source[R, M]) AfterArrival(n *match.Msg[M]) {
	at := s.next
	s.next = 0
	if at == 0 {
		s.usual++
		at = newPlace(s.usual, 0)
	}
	if n == nil {
		return
	}
	*s.x.w.Place(n.Owner) = at
	if s.x.deliverIfDecided(n) {
		s.x.deliverDecided()
	}
}

// announced handles the place of the next message of a queue that is sent again. Places arrive in
// order, and after the messages that went the usual way before. It returns false for others.
func (s *Source[R, M]) announced(t *in[R, M], at Place) bool {
	if at.through() == 0 || at.usual() > s.usual || t.latest != 0 && !at.After(t.latest) {
		return false
	}
	s.next, t.latest = at, at
	return true
}

// order merges the messages of a queue that were sent again with the other messages of the connection,
// when all have arrived. Both lists are in order, so one pass is enough,
// wherever they belong. Until then receives compare places (Receiver.isDecided).
func (s *Source[R, M]) order(t *in[R, M]) {
	if t.latest == 0 { // none was sent again
		return
	}
	w := s.x.w
	var again, others []M // latest first
	for n := s.conn.LastUnexpected(); n != nil; n = w.Before(n.Owner) {
		s.steps++
		if n.Tag == t.tag && w.Place(n.Owner).through() != 0 {
			again = append(again, n.Owner)
		} else {
			others = append(others, n.Owner)
		}
	}
	moves := false
	for len(again) > 0 && len(others) > 0 {
		first, next := again[len(again)-1], others[len(others)-1]
		if !w.Place(next).After(*w.Place(first)) {
			others = others[:len(others)-1]
			if moves {
				w.Requeue(next)
			}
			continue
		}
		moves, again = true, again[:len(again)-1]
		w.Requeue(first)
	}
	if !moves { // they are behind all others already
		return
	}
	for _, u := range slices.Backward(append(others, again...)) { // one of the two lists is empty
		w.Requeue(u)
	}
}

// hides reports whether the peer may have sent messages that match a receive of that tag and mask, are
// older than the visible ones, and are not visible here: they go through a queue,
// or were recalled from one and will be sent again.
func (s *Source[R, M]) hides(tag, mask uint64) bool {
	return slices.ContainsFunc(s.in, func(t *in[R, M]) bool { return t.state >= inOpen && (t.tag^tag)&mask == 0 })
}

// End closes the queues of a connection that has ended or closes.
func (s *Source[R, M]) End() {
	for _, t := range slices.Clone(s.in) {
		if t.gone {
			continue
		}
		t.gone = true
		if t.state == inClosed {
			s.order(t)
			t.remove()
		} else {
			t.stop(nil)
		}
		t.proceed()
	}
}
