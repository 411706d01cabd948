package tuple

import (
	"slices"
	"time"

	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs/stats"
)

// stop begins to close the queue; why counts that.
func (t *in[R, M]) stop(why *stats.Counter) {
	if t.state >= inStopping {
		return
	}
	if why != nil {
		why.Inc()
	}
	x := t.from.x
	t.state = inStopping
	x.closing++
	x.pause()
	for _, r := range t.backlog {
		t.giveBack(r)
	}
	t.backlog = nil
	if !t.gone && !t.told {
		t.from.conn.Tell(t.tag, wire.TupleStop, t.q.Number(), 0)
	}
	t.stopped = t.q.Stop() == nil
	t.proceed()
}

// Looks at a queue that does not stop as a peer is in the middle of a message.
const (
	// stopLooks is in how many calls of Progress, one after the other, it is tried again: for
	// longer than a peer takes that runs, which copies 8 KiB.
	stopLooks = 200
	// stopPause is after how long it is tried again from then on, until the peer runs, or its
	// link is down.
	stopPause = time.Millisecond
)

// stopAgain tries again to stop the queue, which does not wait.
func (t *in[R, M]) stopAgain() {
	if t.stopped = t.q.Stop() == nil; t.stopped || t.looks < stopLooks {
		t.looks++
		t.proceed()
		return
	}
	x := t.from.x
	if !t.waits {
		t.waits = true
		x.unstopped = append(x.unstopped, t)
	}
	x.w.WakeIn(stopPause)
}

// proceed has the next Progress go on with closing the queue.
func (t *in[R, M]) proceed() {
	if x := t.from.x; !t.listed {
		t.listed = true
		x.ended = append(x.ended, t)
		x.w.Raise()
	}
}

// advance closes the queue when nothing of it is missing: the receives, and what the
// sender has to tell, unless it has gone.
func (t *in[R, M]) advance() {
	switch {
	case t.state != inStopping:
	case !t.stopped: // a peer is in the middle of a message
		t.stopAgain()
	case t.posted > 0 || !t.told && !t.gone:
	default:
		t.close()
	}
}

// close closes the queue, and says how many messages have come through it.
func (t *in[R, M]) close() {
	t.state = inClosed
	got, conn := t.q.Received(), t.from.conn
	conn.CloseQueue(t.q)
	switch {
	case t.gone:
		t.remove()
	case got > t.sent:
		conn.Fail("more messages came through a queue than were sent")
	default:
		conn.Tell(t.tag, wire.TupleClosed, t.q.Number(), got)
	}
}

// remove forgets a queue that is closed.
func (t *in[R, M]) remove() {
	s := t.from
	s.x.in.remove(t.tag)
	s.in = slices.DeleteFunc(s.in, func(o *in[R, M]) bool { return o == t })
	s.x.closing--
}
