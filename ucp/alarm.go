package ucp

import (
	"sync/atomic"
	"time"

	"github.com/gucx/gucx/wireup"
)

// alarm has a worker look at what waits for a time: handshakes without an answer and
// farewells that do not leave. A timer of the runtime raises a flag, so that Progress
// reads no clock; none runs while nothing waits.
type alarm struct {
	due   atomic.Bool // stored by the timer's goroutine; pairs with the load in progressAll
	timer *time.Timer // nil until something waited
	armed bool
	late  bool          // it went off while nobody made progress, and was put off for that
	at    time.Duration // when the armed timer goes off
	start time.Time     // when the alarm was first asked for the time
}

// now is the time since the alarm was first asked, by the monotonic clock.
func (a *alarm) now() time.Duration {
	if a.start.IsZero() {
		a.start = time.Now()
	}
	return time.Since(a.start)
}

// set has the worker look no later than at.
func (a *alarm) set(w *Worker, at time.Duration) {
	if a.armed && a.at <= at {
		return
	}
	a.armed, a.at = true, at
	in := at - a.now()
	if a.timer == nil {
		a.timer = time.AfterFunc(in, func() { a.ring(w) })
		return
	}
	a.timer.Reset(in)
}

// ring runs on the timer's goroutine.
func (a *alarm) ring(w *Worker) {
	a.due.Store(true)
	w.Signal()
}

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// A worker that makes progress this long after the alarm went off was away itself:
// once, it gets alarmGrace to hear what has arrived meanwhile before it blames peers.
const (
	alarmLate  = 100 * time.Millisecond
	alarmGrace = 100 * time.Millisecond
)

// alarmPause is the least time between two looks at all EPs: many deadlines that lie
// close together cost one look.
const alarmPause = 10 * time.Millisecond

// onAlarm goes on with the EPs whose time has come, and sets the alarm for the others.
func (w *Worker) onAlarm() {
	a := &w.alarm
	a.due.Store(false)
	a.armed = false
	now := a.now()
	if a.late = !a.late && now-a.at > alarmLate; a.late {
		a.set(w, now+alarmGrace)
		return
	}
	for i := 0; i < len(w.eps.slots); i++ { // a failed EP's callback may make others
		e := w.eps.slots[i].ep
		if e == nil {
			continue
		}
		if at, ok := e.deadline(); ok && at <= now {
			e.timePassed()
		}
		if at, ok := e.deadline(); ok {
			a.set(w, max(at, now+alarmPause))
		}
	}
}

// deadline is when the EP has to do something if nothing happens before.
func (e *EP) deadline() (at time.Duration, ok bool) {
	switch {
	case e.link == nil:
		return 0, false
	case e.ending:
		return e.link.farewell, e.link.farewell > 0
	}
	return e.link.conn.Deadline()
}

// timePassed is called at the deadline.
func (e *EP) timePassed() {
	if e.ending {
		e.destroy()
		return
	}
	e.handle(wireup.Event{Kind: wireup.TimePassed})
}
