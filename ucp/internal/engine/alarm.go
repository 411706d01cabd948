package engine

import (
	"sync/atomic"
	"time"
)

// Alarm has a worker look at what waits for a time: handshakes without an answer and
// notices of disconnecting that do not leave. A timer of the runtime raises a flag, so that Progress
// reads no clock; none runs while nothing waits.
type Alarm struct {
	e     *Engine
	due   atomic.Bool // stored by the timer's goroutine; pairs with the load in progressAll
	timer *time.Timer // nil until something waited
	armed bool
	late  bool          // it went off while nobody made progress, and was put off for that
	at    time.Duration // when the armed timer goes off
	start time.Time     // when the alarm was first asked for the time
}

// Now is the time since the alarm was first asked, by the monotonic clock.
func (a *Alarm) Now() time.Duration {
	if a.start.IsZero() {
		a.start = time.Now()
	}
	return time.Since(a.start)
}

// Set has the worker look no later than at.
func (a *Alarm) Set(at time.Duration) {
	if a.armed && a.at <= at {
		return
	}
	a.armed, a.at = true, at
	in := at - a.Now()
	if a.timer == nil {
		a.timer = time.AfterFunc(in, func() { a.ring() })
		return
	}
	a.timer.Reset(in)
}

// ring runs on the timer's goroutine.
func (a *Alarm) ring() {
	a.due.Store(true)
	a.e.Signal()
}

func (a *Alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// A worker that makes progress this long after the alarm went off was away itself:
// once, it gets AlarmGrace to hear what has arrived meanwhile before peers count as failed.
const (
	AlarmLate  = 100 * time.Millisecond
	AlarmGrace = 100 * time.Millisecond
)

// rung has the owner look at what waits, unless everything is late.
func (a *Alarm) rung() {
	a.due.Store(false)
	a.armed = false
	now := a.Now()
	if a.late = !a.late && now-a.at > AlarmLate; a.late {
		a.Set(now + AlarmGrace)
		return
	}
	a.e.owner.Alarm(now)
}

// Pending reports whether a time is set, and Due whether it has come.
func (a *Alarm) Pending() bool { return a.armed }

// Due reports that a time has come and that nobody has looked yet.
func (a *Alarm) Due() bool { return a.due.Load() }
