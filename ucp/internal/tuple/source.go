package tuple

import (
	"slices"

	"github.com/gucx/gucx/ucp/internal/match"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/uct"
)

// Conn is the connection that a Source is of. All queues that it has at a time are of one
// transport.
type Conn[R, M any] interface {
	Peer
	// QueueAttr is what its transport says of queues; nil if there is to be none now.
	QueueAttr() *uct.QueueAttr
	// NewQueue makes a queue for depth receives, which CloseQueue closes.
	NewQueue(depth int) (uct.Queue, error)
	CloseQueue(q uct.Queue)
	// Prepare makes a receive ready for a queue of the connection, and returns its record; nil if
	// no queue takes it. Then it is Received, of a message of n bytes, or Returned. That
	// reports false if the receive has ended by that, as it was canceled.
	Prepare(v R) *Recv[R, M]
	Received(v R, n int)
	Returned(v R) bool
	// Fail ends the connection for a peer that does not keep to the rules.
	Fail(why string)
}

// Source is what a worker knows of the tagged messages that come over a connection. Init
// makes it ready.
type Source[R, M any] struct {
	x    *Receiver[R, M]
	conn Conn[R, M]

	usual uint64 // tagged messages that came the usual way
	next  Place  // of the next one, if that is sent again; 0 if it is not
	in    []*in[R, M]
}

// Init makes the source of a connection ready.
func (s *Source[R, M]) Init(x *Receiver[R, M], conn Conn[R, M]) { s.x, s.conn = x, conn }

// Take handles what the sender tells of a queue. It reports false for what makes no sense.
func (s *Source[R, M]) Take(c *wire.Tuple) bool {
	switch c.Kind {
	case wire.TupleOpen:
		s.offer(c.Tag)
		return true
	case wire.TupleNext:
		s.next = Place(c.Value)
		return s.next.through() != 0
	case wire.TupleResent: // the last one was canceled before it was sent again
		s.next = 0
	}
	t := s.x.in.find(c.Tag)
	return t != nil && t.from == s && t.take(c)
}

// offer makes a queue for a peer that wants one, unless something speaks against it.
func (s *Source[R, M]) offer(tag uint64) {
	t, most := s.newQueue(tag)
	if t == nil {
		s.x.stats.refused.Inc()
		s.conn.Tell(tag, wire.TupleOpened, 0, 0)
		return
	}
	s.x.stats.opened.Inc()
	s.conn.Tell(tag, wire.TupleOpened, t.q.Number(), uint64(most))
}

// maxQueueDepth is how many receives a queue holds; more wait here.
const maxQueueDepth = 128

// newQueue makes a queue, for messages of most bytes; nil if there is to be none now.
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

// Coming is called before a message of the tag that came the usual way is handled: the queue
// that another sender has for the tag is closed.
func (s *Source[R, M]) Coming(tag uint64) {
	if t := s.x.in.find(tag); t != nil && t.from != s && t.state == inOpen {
		t.stop(&s.x.stats.others)
	}
}

// Came is called after a message that came the usual way was handled. n is its node if it
// was kept, nil if it was not; then it gets its place among those of its sender.
func (s *Source[R, M]) Came(n *match.Msg[M]) {
	at := s.next
	s.next = 0
	if at == 0 {
		s.usual++
		at = newPlace(s.usual, 0)
	}
	if n == nil {
		return
	}
	s.enter(n, at)
	if s.x.handIfCertain(n) {
		s.x.handCertain()
	}
}

// enter puts what was sent after a message, and is there already, behind it.
func (s *Source[R, M]) enter(n *match.Msg[M], at Place) {
	w := s.x.w
	*w.Place(n.Owner) = at
	var later []M
	for b := w.Before(n.Owner); b != nil && w.Place(b.Owner).after(at); b = w.Before(b.Owner) {
		later = append(later, b.Owner)
	}
	for _, u := range slices.Backward(later) {
		w.Requeue(u)
	}
}

// hides reports that the peer may have sent messages before those that are here which come
// through a queue, or were taken out of it and are to be sent again, and which a receive
// of that tag and mask fits.
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
			t.remove()
		} else {
			t.stop(nil)
		}
		t.proceed()
	}
}
