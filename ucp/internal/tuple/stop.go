package tuple

import (
	"slices"
	"time"

	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs/stats"
)

// stop starts closing the queue and counts the reason in why.
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
		t.returnRecv(r)
	}
	t.backlog = nil
	if !t.gone && !t.senderStopped {
		t.from.conn.SendControl(t.tag, wire.TupleStop, t.q.Number(), 0)
	}
	t.stopped = t.q.Stop() == nil
	t.proceed()
}

// Retries of stopping a queue while a peer is in the middle of a message.
const (
	// stopAttempts is the number of consecutive calls of Progress that retry. They take longer than a running peer takes to
	// copy 8 KiB.
	stopAttempts = 200
	// stopPause is the time between later retries, until the peer runs again or its
	// link is down.
	stopPause = time.Millisecond
)

// stopAgain retries to stop the queue, without waiting.
func (t *in[R, M]) stopAgain() {
	if t.stopped = t.q.Stop() == nil; t.stopped || t.failedStops < stopAttempts {
		t.failedStops++
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

// proceed makes the next Progress continue closing the queue.
func (t *in[R, M]) proceed() {
	if x := t.from.x; !t.listed {
		t.listed = true
		x.ended = append(x.ended, t)
		x.w.Raise()
	}
}

// advance closes the queue when all its receives have returned and the sender's control message
// has arrived, or the sender is gone.
func (t *in[R, M]) advance() {
	switch {
	case t.state != inStopping:
	case !t.stopped: // a peer is in the middle of a message
		t.stopAgain()
	case t.posted > 0 || !t.senderStopped && !t.gone:
	default:
		t.close()
	}
}

// close closes the queue, and reports to the sender how many messages it received.
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
		conn.SendControl(t.tag, wire.TupleClosed, t.q.Number(), got)
	}
}

// remove removes a closed queue from the table.
func (t *in[R, M]) remove() {
	s := t.from
	s.x.in.remove(t.tag)
	s.in = slices.DeleteFunc(s.in, func(o *in[R, M]) bool { return o == t })
	s.x.closing--
}
