package tuple

import (
	"slices"
	"time"

	"github.com/gucx/gucx/ucp/internal/match"
	"github.com/gucx/gucx/ucs/stats"
)

// Worker is what a Receiver needs of the worker that it belongs to. R and M are what the
// worker has of its receives and of messages that were kept: the owners of the nodes in its
// table, pointers.
type Worker[R, M any] interface {
	// Order tells receives in the order in which they were posted.
	Order(v R) uint64
	// Queueable reports that a queue can take the receive if its mask is full.
	Queueable(v R) bool
	// Expects says that the receive is in the table from now on, Holds that it waits until
	// the worker is not paused: Receiver.Unhold takes it out.
	Expects(v R)
	Holds(v R)
	// Give gives a message, which has left the table, to a receive that is nowhere else.
	Give(u M, v R)

	// Source is the connection that a message came over, and Place its place among those.
	Source(u M) *Source[R, M]
	Place(u M) *Place
	// Before is the message of the same connection that was kept before it; nil if it is the
	// first.
	Before(u M) *match.Msg[M]
	// Requeue puts a message behind all others that were kept, in the table and of its
	// connection.
	Requeue(u M)

	// Raise has the next Progress call Receiver.Work, and WakeIn have Receiver.LookAgain be
	// called after a time.
	Raise()
	WakeIn(d time.Duration)
}

// Receiver decides for the receives of a worker whether a queue gets them, and which message
// that went the usual way. Init makes it ready.
type Receiver[R, M any] struct {
	w     Worker[R, M]
	tags  *match.Table[R, M]
	cfg   *Config
	stats *Stats

	in      table[*in[R, M]] // one sender at a time has a queue for a tag
	closing int              // of these, those that are being closed
	ended   []*in[R, M]      // that may be closed now
	clock   uint64           // of the use of tuples

	paused    bool
	held      []*match.Recv[R] // receives that wait while it is paused, in order
	unstopped []*in[R, M]      // that are looked at when LookAgain is called
}

// Init makes the receiver of a worker with that table ready.
func (x *Receiver[R, M]) Init(w Worker[R, M], tags *match.Table[R, M], cfg *Config, stats *Stats) {
	x.w, x.tags, x.cfg, x.stats = w, tags, cfg, stats
}

// exactMask is the mask of a receive that a queue may take.
const exactMask = ^uint64(0)

// Admit gives a receive, which is nowhere yet, the message that it fits, or posts it where
// one will come.
func (x *Receiver[R, M]) Admit(n *match.Recv[R]) {
	tag, mask := n.Tag, n.Mask
	if !x.paused && mask != exactMask {
		x.closeFor(tag, mask, &x.stats.wildcards)
	}
	if x.paused {
		x.hold(n)
		if x.tags.Peek(tag, mask) != nil {
			x.handCertain()
		}
		return
	}
	if m := x.tags.Take(tag, mask); m != nil {
		x.w.Give(m.Owner, n.Owner)
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

// fitsAny reports that a receive which no queue takes waits for messages of a tag.
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

// evict closes the queue that was not used for the longest time.
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

// Work goes on with closing queues. It returns how many it has looked at.
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
	x.handCertain()
	return len(ended)
}

// LookAgain goes on with queues that did not stop.
func (x *Receiver[R, M]) LookAgain() {
	for _, t := range x.unstopped {
		t.waits = false
		t.proceed()
	}
	x.unstopped = x.unstopped[:0]
}

// Queues is how many queues there are, and whether none of them comes or goes.
func (x *Receiver[R, M]) Queues() (n int, steady bool) {
	steady = !x.paused
	x.in.all(func(_ uint64, t *in[R, M]) bool {
		steady = steady && t.state == inOpen
		return true
	})
	return x.in.n, steady
}

// Paused reports that receives wait until queues are closed.
func (x *Receiver[R, M]) Paused() bool { return x.paused }

// tick is the time for what was used last.
func (x *Receiver[R, M]) tick() uint64 {
	x.clock++
	return x.clock
}
