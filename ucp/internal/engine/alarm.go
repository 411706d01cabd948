package engine

import (
	"sync/atomic"
	"time"
)

// Alarm makes a worker handle timeouts, for example of handshakes without a reply and of
// DISCONNECT messages that cannot be sent. A runtime timer sets a flag, so that Progress
// reads no clock. No timer runs while no time is set.
type Alarm struct {
	e         *Engine
	due       atomic.Bool // stored by the timer's goroutine; pairs with the load in Engine.runAll
	timer     *time.Timer // nil before the first Set
	armed     bool
	postponed bool          // the alarm fired while the worker made no progress, and was postponed
	at        time.Duration // time at which the armed timer fires
	start     time.Time     // time of the first call of Now
}

// Now returns the monotonic time since the first call of Now.
func (a *Alarm) Now() time.Duration {
	if a.start.IsZero() {
		a.start = time.Now()
	}
	return time.Since(a.start)
}

// Set makes the alarm fire no later than at.
func (a *Alarm) Set(at time.Duration) {
	if a.armed && a.at <= at {
		return
	}
	a.armed, a.at = true, at
	in := at - a.Now()
	if a.timer == nil {
		a.timer = time.AfterFunc(in, func() { a.onTimer() })
		return
	}
	a.timer.Reset(in)
}

// onTimer runs on the timer's goroutine.
func (a *Alarm) onTimer() {
	a.due.Store(true)
	a.e.Signal()
}

func (a *Alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// A worker that makes progress later than AlarmLate after the alarm was itself late. The alarm is then
// postponed once, by AlarmGrace, so that the worker receives messages that have arrived before it fails peers.
const (
	AlarmLate  = 100 * time.Millisecond
	AlarmGrace = 100 * time.Millisecond
)

// handleDue calls the owner, or postpones the alarm once if the worker itself was late.
func (a *Alarm) handleDue() {
	a.due.Store(false)
	a.armed = false
	now := a.Now()
	if a.postponed = !a.postponed && now-a.at > AlarmLate; a.postponed {
		a.Set(now + AlarmGrace)
		return
	}
	a.e.owner.Alarm(now)
}

// Pending reports whether a time is set.
func (a *Alarm) Pending() bool { return a.armed }

// Due reports whether the alarm has fired and the owner has not been called yet.
func (a *Alarm) Due() bool { return a.due.Load() }
