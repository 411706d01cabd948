package tuple

import (
	"slices"

	"github.com/gucx/gucx/ucp/internal/match"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/uct"
)

// in is the queue at the receiver for messages of one tag from one sender.
//
//	offered -- SWITCH --> open -- stop --> stopping -- STOPPED, all receives back --> closed -- RESENT -->
//
// When its connection ends, the queue is stopped, and closes when all its receives have returned.
type in[R, M any] struct {
	from *Source[R, M]
	tag  uint64
	q    uct.Queue

	state     inState
	contested bool          // while it was offered, another sender had a message of the tag that it could not send
	posted    int           // receives posted to the queue
	backlog   []*Recv[R, M] // receives that wait for room in the queue, in order
	used      uint64

	stopped       bool   // the queue accepts no more messages
	failedStops   int    // number of attempts to stop the queue that failed because a peer was copying a message
	waits         bool   // listed in Receiver.unstopped
	senderStopped bool   // STOPPED has arrived
	latest        Place  // of the latest message that was sent again; 0: none yet
	sent          uint64 // number of messages that the sender has sent, from STOPPED
	gone          bool   // the connection has ended
	listed        bool   // in Receiver.ended
}

// inState is the state of a queue at the receiver.
type inState uint8

const (
	inOffered  inState = iota // the sender does not use the queue yet
	inOpen                    // the sender uses it
	inStopping                // it is being stopped
	inClosed                  // it is closed; the sender sends the other messages again
)

// switched opens the queue: all messages that were sent the usual way have arrived, and
// the queue gets the receives of the tag that matched none.
func (t *in[R, M]) switched() {
	t.state = inOpen
	x := t.from.x
	switch {
	case x.fitsAny(t.tag):
		t.stop(&x.stats.wildcards)
		return
	case t.contested:
		t.stop(&x.stats.others)
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

// refuse closes the queue for a receive that it does not accept.
func (t *in[R, M]) refuse(n *match.Recv[R]) {
	x := t.from.x
	t.stop(&x.stats.wildcards)
	x.hold(n)
}

// post posts a receive to the queue. It returns false if the queue cannot accept the receive.
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

// postBacklog posts the receives that waited for room. If one cannot be posted, it closes the queue,
// because nothing else would complete that receive.
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

// returnRecv returns a receive of the queue to the worker.
func (t *in[R, M]) returnRecv(r *Recv[R, M]) {
	if t.from.conn.Returned(r.node.Owner) {
		t.from.x.hold(r.node)
	}
}

// take handles a control message of the sender. It returns false if the message is not valid.
func (t *in[R, M]) take(c *wire.Tuple) bool {
	if t.q.Number() != c.Number {
		return false
	}
	switch {
	case c.Kind == wire.TupleSwitch && t.state == inOffered:
		t.switched()
	case c.Kind == wire.TupleSwitch && t.state == inStopping: // the queue was evicted in the meantime
	case c.Kind == wire.TupleStopped && t.state <= inStopping && !t.senderStopped:
		t.senderStopped, t.sent = true, c.Value
		t.stop(nil)
		t.proceed()
	case c.Kind == wire.TupleNext && t.state == inClosed:
		return t.from.announced(t, Place(c.Value))
	case c.Kind == wire.TupleResent && t.state == inClosed:
		t.from.order(t)
		t.remove()
		t.from.x.resume()
		t.from.x.deliverDecided()
	default:
		return false
	}
	return true
}
