package ucp

import (
	"time"

	"github.com/gucx/gucx/ucp/internal/handshake"
)

// alarmPause is the minimum time between two checks of the deadlines, for each 1,000 EPs with a link. So one check handles
// many deadlines that are close together, and the share of time that checks take does not grow with the number of EPs.
const alarmPause = 10 * time.Millisecond

// Alarm implements engine.Owner. It handles EPs with an expired deadline, REQUESTs that wait for room and
// tuple queues that have not stopped, and sets the alarm for the next deadline.
func (o *engineOwner) Alarm(now time.Duration) {
	w := o.w
	w.each(func(p *protocol) func(*Worker) { return p.alarm })
	pause := alarmPause * time.Duration(1+len(w.lanes.links)/1000)
	for i := len(w.lanes.links) - 1; i >= 0; i-- {
		if i >= len(w.lanes.links) {
			continue
		}
		l := w.lanes.links[i] // a deadline, and the callback of a failed EP, may add and remove others
		at, ok := l.e.deadline()
		if ok && at <= now {
			l.e.timePassed()
			at, ok = l.e.deadline()
		}
		if ok {
			w.engine.Alarm.Set(max(at, now+pause))
		}
	}
}

// deadline returns the next time at which timePassed must be called; ok is false if there is none.
func (e *EP) deadline() (at time.Duration, ok bool) {
	switch {
	case e.link == nil:
		return 0, false
	case e.closing.ending:
		return e.link.disconnectDeadline, e.link.disconnectDeadline > 0
	case e.state == epFailed && !e.link.conn.Over(): // its lanes are closed, and none is tried again
		return e.firstDue(0, false)
	}
	return e.firstDue(e.link.conn.Deadline())
}

// timePassed is called at the deadline.
func (e *EP) timePassed() {
	if e.closing.ending {
		e.destroy()
		return
	}
	if !e.protocolTime() {
		e.handle(handshake.Event{Kind: handshake.TimePassed})
	}
}
