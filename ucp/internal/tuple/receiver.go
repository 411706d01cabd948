package tuple

import (
	"slices"
	"time"

	"github.com/gucx/gucx/ucp/internal/match"
	"github.com/gucx/gucx/ucs/stats"
)

// Worker has the methods of a worker that its Receiver calls. R and M are the worker's types for receives and for unexpected
// messages, which are pointers: the owners of the nodes in its table.
type Worker[R, M any] interface {
	// Order returns the number of a receive in the order in which receives were posted.
	Order(v R) uint64
	// Queueable reports whether a queue can accept the receive, provided that its mask is full.
	Queueable(v R) bool
	// Expects is called when the receive enters the table, Holds when it waits until
	// the worker is no longer paused: Receiver.Unhold removes it.
	Expects(v R)
	Holds(v R)
	// Deliver passes a message, which has left the table, to a receive that is in no queue and no table.
	Deliver(u M, v R)

	// Source returns the connection of a message, and Place its place among those of the connection.
	Source(u M) *Source[R, M]
	Place(u M) *Place
	// Before returns the previous unexpected message of the same connection; nil for the
	// first.
	Before(u M) *match.Msg[M]
	// Requeue moves a message behind all other unexpected messages, in the table and of its
	// connection.
	Requeue(u M)

	// Resumed is called when the pause has ended and all receives are in the table or a queue again.
	Resumed()

	// Raise makes the next Progress call Receiver.Work. WakeIn makes the worker call Receiver.RetryStops
	// after a duration.
	Raise()
	WakeIn(d time.Duration)
}

// Receiver decides for each receive of a worker whether it goes to a queue, and which message of
// the usual way matches it. Init makes it ready.
type Receiver[R, M any] struct {
	w     Worker[R, M]
	tags  *match.Table[R, M]
	cfg   *Config
	stats *Stats

	in      table[*in[R, M]] // for each tag one sender at a time has a queue
	closing int              // number of queues that are being closed
	ended   []*in[R, M]      // may be closed now
	clock   uint64           // counts uses of tuples, for eviction

	paused    bool
	held      []*match.Recv[R] // receives that wait while the worker is paused, in order
	unstopped []*in[R, M]      // queues that RetryStops tries to stop again
}

// Init initializes the receiver of a worker with that table.
func (x *Receiver[R, M]) Init(w Worker[R, M], tags *match.Table[R, M], cfg *Config, stats *Stats) {
	x.w, x.tags, x.cfg, x.stats = w, tags, cfg, stats
}

// exactMask is the mask of a receive that a queue may accept.
const exactMask = ^uint64(0)

// Admit matches a new receive with a message, or posts it to the queue or the table that will get
// its message.
func (x *Receiver[R, M]) Admit(n *match.Recv[R]) {
	tag, mask := n.Tag, n.Mask
	if !x.paused && mask != exactMask {
		x.closeFor(tag, mask, &x.stats.wildcards)
	}
	if x.paused {
		x.hold(n)
		if x.tags.Peek(tag, mask) != nil {
			x.deliverDecided()
		}
		return
	}
	if m := x.tags.Take(tag, mask); m != nil {
		x.w.Deliver(m.Owner, n.Owner)
		return
	}
	if t := x.in.find(tag); t != nil && t.state == inOpen && mask == exactMask {
		if !t.post(n) {
			t.refuse(n)
		}
		return
	}
	x.w.Expects(n.Owner)
	x.tags.Expect(n)
}

// closeFor closes the queues that compete for messages of that tag and mask, and counts
// them.
func (x *Receiver[R, M]) closeFor(tag, mask uint64, why *stats.Counter) {
	if mask == exactMask {
		if t := x.in.find(tag); t != nil && t.state == inOpen {
			t.stop(why)
		}
		return
	}
	if x.in.n == 0 {
		return
	}
	var found []*in[R, M]
	x.in.all(func(other uint64, t *in[R, M]) bool {
		if (other^tag)&mask == 0 && t.state == inOpen {
			found = append(found, t)
		}
		return true
	})
	for _, t := range found {
		t.stop(why)
	}
}

// fitsAny reports whether a receive that no queue accepts waits for messages of a tag.
func (x *Receiver[R, M]) fitsAny(tag uint64) bool {
	if !x.cfg.Wildcards {
		return false
	}
	fits := func(n *match.Recv[R]) bool {
		return (n.Tag^tag)&n.Mask == 0 && !(n.Mask == exactMask && x.w.Queueable(n.Owner))
	}
	for n := range x.tags.Receives() {
		if fits(n) {
			return true
		}
	}
	return slices.ContainsFunc(x.held, fits)
}

// evict closes the least recently used queue.
func (x *Receiver[R, M]) evict() {
	var oldest *in[R, M]
	x.in.all(func(_ uint64, t *in[R, M]) bool {
		if t.state <= inOpen && (oldest == nil || t.used < oldest.used) {
			oldest = t
		}
		return true
	})
	if oldest != nil {
		oldest.stop(&x.stats.evicted)
	}
}

// Work continues closing queues. It returns the number of queues that it looked at.
func (x *Receiver[R, M]) Work() int {
	if len(x.ended) == 0 {
		return 0
	}
	ended := x.ended
	x.ended = nil
	for _, t := range ended {
		t.listed = false
		t.advance()
	}
	x.resume()
	x.deliverDecided()
	return len(ended)
}

// RetryStops tries again to stop the queues that did not stop.
func (x *Receiver[R, M]) RetryStops() {
	for _, t := range x.unstopped {
		t.waits = false
		t.proceed()
	}
	x.unstopped = x.unstopped[:0]
}

// Queues returns the number of queues, and whether none of them is being opened or closed.
func (x *Receiver[R, M]) Queues() (n int, steady bool) {
	steady = !x.paused
	x.in.all(func(_ uint64, t *in[R, M]) bool {
		steady = steady && t.state == inOpen
		return true
	})
	return x.in.n, steady
}

// Paused reports whether receives wait until queues are closed.
func (x *Receiver[R, M]) Paused() bool { return x.paused }

// tick returns the next time stamp for eviction.
func (x *Receiver[R, M]) tick() uint64 {
	x.clock++
	return x.clock
}
