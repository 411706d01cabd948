package ucp

import (
	"time"

	"github.com/gucx/gucx/wireup"
)

// alarmPause is the least time between two looks at all EPs: many deadlines that lie
// close together cost one look.
const alarmPause = 10 * time.Millisecond

// Alarm implements engine.Owner. It handles EPs with an expired deadline, REQUESTs that wait for room and
// tuple queues that have not stopped, and sets the alarm for the next deadline.
func (o *engineOwner) Alarm(now time.Duration) {
	w := o.w
	w.tuples.lookAgain()
	if !w.late.Empty() {
		w.engine.Raise()
	}
	for e := range w.eps.All() { // a failed EP's callback may make others
		if at, ok := e.deadline(); ok && at <= now {
			e.timePassed()
		}
		if at, ok := e.deadline(); ok {
			w.engine.Alarm.Set(max(at, now+alarmPause))
		}
	}
}

// deadline is when the EP has to do something if nothing happens before.
func (e *EP) deadline() (at time.Duration, ok bool) {
	switch {
	case e.link == nil:
		return 0, false
	case e.ending:
		return e.link.disconnectDeadline, e.link.disconnectDeadline > 0
	}
	return e.link.due()
}

// timePassed is called at the deadline.
func (e *EP) timePassed() {
	switch {
	case e.ending:
		e.destroy()
		return
	case e.link.expired():
		e.expire()
		return
	}
	e.link.ask()
	e.handle(wireup.Event{Kind: wireup.TimePassed})
}
