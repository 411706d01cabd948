package tuple

import (
	"slices"

	"github.com/gucx/gucx/ucp/internal/match"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/uct"
)

// in is the queue for messages of one tag from one sender.
//
//	offered -- SWITCH --> open -- stop --> stopping -- STOPPED, all receives back --> closed -- RESENT -->
//
// A connection that ends stops its queues, and then nothing is waited for but the receives.
type in[R, M any] struct {
	from *Source[R, M]
	tag  uint64
	q    uct.Queue

	state   inState
	posted  int           // receives that the queue has
	backlog []*Recv[R, M] // for which it had no room, in order
	used    uint64

	stopped bool   // the queue takes no message any more
	looks   int    // how often it was tried in vain to have it so
	waits   bool   // in Receiver.unstopped
	told    bool   // the sender has said how many it has sent
	latest  Place  // of the latest message that is sent again; 0: none yet
	sent    uint64 // that
	gone    bool   // the connection has ended
	listed  bool   // in Receiver.ended
}

// inState is how far a queue has come.
type inState uint8

const (
	inOffered  inState = iota // the sender does not use the queue yet
	inOpen                    // it does
	inStopping                // it is to be closed
	inClosed                  // it was; the sender sends again what has not come
)

// switched begins with a queue: all messages that were sent the usual way have come, and
// those receives that got none are the queue's.
func (t *in[R, M]) switched() {
	t.state = inOpen
	x := t.from.x
	if x.fitsAny(t.tag) {
		t.stop(&x.stats.wildcards)
		return
	}
	for t.state == inOpen && !x.paused {
		n := x.tags.Arrive(t.tag)
		if n == nil {
			return
		}
		if !t.post(n) {
			t.refuse(n)
		}
	}
}

// refuse closes the queue for a receive that it does not take.
func (t *in[R, M]) refuse(n *match.Recv[R]) {
	x := t.from.x
	t.stop(&x.stats.wildcards)
	x.hold(n)
}

// post gives a receive to the queue. It reports false for one that cannot be.
func (t *in[R, M]) post(n *match.Recv[R]) bool {
	conn := t.from.conn
	r := conn.Prepare(n.Owner)
	if r == nil {
		return false
	}
	r.node, r.t = n, t
	t.used = t.from.x.tick()
	err := uct.ErrNoResource
	if len(t.backlog) == 0 {
		err = r.post()
	}
	switch err {
	case nil:
	case uct.ErrNoResource:
		t.backlog = append(t.backlog, r)
	default:
		return !conn.Returned(n.Owner)
	}
	return true
}

// postBacklog posts the receives that waited for room. If one cannot be posted, the queue is
// closed: nothing else would end it.
func (t *in[R, M]) postBacklog() {
	for len(t.backlog) > 0 {
		switch err := t.backlog[0].post(); err {
		case nil:
			t.backlog = slices.Delete(t.backlog, 0, 1)
		case uct.ErrNoResource:
			return
		default:
			t.stop(&t.from.x.stats.wildcards)
			return
		}
	}
}

// giveBack takes a receive that the queue had.
func (t *in[R, M]) giveBack(r *Recv[R, M]) {
	if t.from.conn.Returned(r.node.Owner) {
		t.from.x.hold(r.node)
	}
}

// take handles what the sender tells of the queue. It reports false for what makes no sense.
func (t *in[R, M]) take(c *wire.Tuple) bool {
	if t.q.Number() != c.Number {
		return false
	}
	switch {
	case c.Kind == wire.TupleSwitch && t.state == inOffered:
		t.switched()
	case c.Kind == wire.TupleSwitch && t.state == inStopping: // it was evicted before
	case c.Kind == wire.TupleStopped && t.state <= inStopping && !t.told:
		t.told, t.sent = true, c.Value
		t.stop(nil)
		t.proceed()
	case c.Kind == wire.TupleNext && t.state == inClosed:
		return t.from.announced(t, Place(c.Value))
	case c.Kind == wire.TupleResent && t.state == inClosed:
		t.from.order(t)
		t.remove()
		t.from.x.resume()
		t.from.x.handCertain()
	default:
		return false
	}
	return true
}
