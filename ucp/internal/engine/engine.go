// Package engine makes progress: it polls the ifaces with endpoints, checks
// the events of the others, runs deferred work and timers, and lets blocking
// calls spin, yield and park. It knows ifaces, but not the endpoints over them.
package engine

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/stats"
	"github.com/gucx/gucx/uct"
)

// Owner is the worker that an engine belongs to.
type Owner interface {
	// Work does the work that callbacks have deferred, outside of any callback, and returns how
	// many items it handled; see Raise.
	Work() int
	// Alarm handles the timeouts that are due at now, and sets the alarm again.
	Alarm(now time.Duration)
}

// Engine makes progress for one owner. One goroutine at a time owns it; only Signal may be
// called by any. Init comes first.
type Engine struct {
	// Ticks and Run are for the owner's Progress, which calls Run directly.
	Ticks uint64    // the number of calls of Progress, plus one, that only poll; due: none
	Run   [2]poller // what Progress calls, by the highest bit of Ticks; neither is nil

	hot       poller        // the iface that is polled, or all of them; never nil
	watch     *ucs.Watch    // on hot; nil if there is none
	inside    bool          // a goroutine makes progress
	slow      bool          // there is work besides polling; see Raise
	pollIdle  bool          // ifaces without endpoints are polled too
	stopped   bool          // no iface is polled: they are closed or being closed
	polled    int           // ifaces that are polled
	kernel    bool          // one of them makes a system call at each poll
	draining  []*Iface      // ifaces that are polled now and then
	idle      []*Iface      // resting ifaces with a flag for events
	unflagged []*Iface      // resting ifaces without one
	eventFDs  []unix.PollFd // their descriptors
	looks     uint          // calls of checkIdle
	ifaces    []*Iface
	armed     []*Iface     // before the last sleep; of the goroutine that parks
	pushers   []uct.Pusher // of the ifaces that have one
	resting   []*Iface     // have lost their last endpoint
	owner     Owner

	// Spin, Turn and Alarm are parts of the engine.
	Spin  Spinner
	Turn  Turn
	Alarm Alarm
	// ParkLimit bounds one sleep.
	ParkLimit time.Duration
	// Sleeps counts the sleeps of blocking calls.
	Sleeps stats.Counter

	posted atomic.Bool // stored by Post and Park; pairs with the load in runAll
	woke   atomic.Bool // some Iface.woke is set; stored by Park, pairs with the swap in pollWoken

	parkMu sync.Mutex // Signal reads park from any goroutine
	park   *parker    // nil until the first sleep
}

// Init makes the engine of owner. spinPolls is the number of polls of a blocking call before it
// parks; 0 adapts, negative never parks. With pollIdle, ifaces without endpoints are polled
// too.
func (e *Engine) Init(owner Owner, spinPolls int, pollIdle bool) {
	e.owner, e.pollIdle, e.ParkLimit = owner, pollIdle, parkLimit
	e.Run[1] = (*all)(e)
	e.setHot(noPoller{}, quiet, false)
	e.Spin.Fixed = spinPolls
	e.Turn.init()
	e.Alarm.e = e
}

// Start lets all ifaces rest, since none has an endpoint yet.
func (e *Engine) Start() {
	for _, i := range e.ifaces {
		i.rest()
	}
}

// Progress completes operations and delivers messages. It returns the number of events.
// It panics if it detects that it is running already.
func (e *Engine) Progress() int {
	t := e.Ticks
	e.Ticks--
	return e.Run[t>>63].Progress()
}

// HasPushers reports whether some iface joins messages; see Push.
func (e *Engine) HasPushers() bool { return len(e.pushers) > 0 }

// Push sends the messages that ifaces have joined.
func (e *Engine) Push() {
	for _, p := range e.pushers {
		p.Push()
	}
}

// enter records that a goroutine makes progress, to detect a second one or a callback. As for
// concurrent writes to a map, detection is likely, not certain, and costs nothing.
func (e *Engine) enter() {
	if e.inside {
		panic(uct.TwoAtOnce)
	}
	e.inside = true
}

// setHot sets the poller. An iface without a watch that detects concurrent polls by itself
// is polled directly.
func (e *Engine) setHot(p poller, watch *ucs.Watch, guarded bool) {
	e.hot, e.watch = p, watch
	switch {
	case watch != nil:
		e.Run[0] = (*watched)(e)
	case guarded:
		e.Run[0] = p
	default:
		e.Run[0] = (*unguarded)(e)
	}
}

// all is an engine whose Progress polls and does all other work.
type all Engine

func (a *all) Progress() int { return (*Engine)(a).runAll() }

// unguarded is an engine whose iface does not detect concurrent polls.
type unguarded Engine

func (u *unguarded) Progress() int {
	e := (*Engine)(u)
	e.enter()
	n := e.hot.Progress()
	e.inside = false
	return n
}

// watched is an engine with a watch on its iface.
type watched Engine

func (w *watched) Progress() int { // as unguarded, which a call would cost
	e := (*Engine)(w)
	if e.watch.Idle() {
		return 0
	}
	e.enter()
	n := e.hot.Progress()
	e.inside = false
	return n
}

// poller is the part of an iface that Progress needs.
type poller interface{ Progress() int }

// noPoller is the poller where no iface is polled.
type noPoller struct{}

func (noPoller) Progress() int { return 0 }

// manyPollers are polled one after the other.
type manyPollers []poller

func (s manyPollers) Progress() (n int) {
	for _, i := range s {
		n += i.Progress()
	}
	return n
}

// quiet is a watch that is always idle.
var (
	quietWord uint32
	quiet     = &ucs.Watch{Word: &quietWord, Attention: &quietWord}
)

// watchOf returns the watch of an iface; nil if it has none.
func watchOf(i *uct.IfaceExt) *ucs.Watch {
	if i.Watch == nil {
		return nil
	}
	return i.Watch.Watch()
}

// IdleTicks is the number of calls of Progress between two checks of the flags of
// resting ifaces while others are polled. Only new connections and the last
// acknowledgements of handshakes arrive on resting ifaces.
const IdleTicks = 64

// due is the value of Ticks for which the next call of Progress does all work. Later calls decrement it
// further, which makes no difference.
const due = 1<<64 - 1

// runAll is Progress with the work that most calls leave out.
func (e *Engine) runAll() (n int) {
	e.enter()
	if e.Alarm.due.Load() {
		e.Alarm.rung()
	}
	if e.posted.Load() {
		e.posted.Store(false)
		e.slow = true
	}
	if e.slow {
		n = e.work()
	}
	n += e.hot.Progress()
	if e.polled > 0 && !e.slow {
		e.Ticks = IdleTicks - 1
	}
	n += e.checkIdle()
	e.inside = false
	return n
}

// work does the work that callbacks have deferred.
func (e *Engine) work() int {
	e.slow = false
	e.pollWoken()
	n := e.owner.Work()
	resting := e.resting
	e.resting = nil
	for _, i := range resting {
		i.rest()
	}
	return n
}

// Raise makes the next Run call the owner's Work.
func (e *Engine) Raise() { e.slow, e.Ticks = true, due }

// Post makes one of the next Runs call the owner's Work, and wakes the goroutine that waits in
// a blocking call. Any goroutine may call it.
func (e *Engine) Post() {
	e.posted.Store(true)
	e.Signal()
}

// Polled is the number of ifaces that each Progress polls.
func (e *Engine) Polled() int { return e.polled }

// Quiet reports whether the watch of the only polled iface is idle, or no iface is
// polled.
func (e *Engine) Quiet() bool { return e.watch != nil && e.watch.Idle() }

// Leave ends a blocking call as Turn.Release does. As a deferred call it also runs after a panic of a
// callback, so that closing the worker does not wait for the blocking call. It is not for the data
// path, which defers no calls.
func (e *Engine) Leave() {
	e.inside = false
	e.Turn.Release()
}

// BeginClose ends the blocking call in progress, if there is one, and
// prevents further blocking calls. It holds a lock until EndClose, which the caller
// calls when the worker is closed.
func (e *Engine) BeginClose() {
	e.Turn.mu.Lock()
	if e.Turn.state.Or(turnClosing)&turnTaken != 0 {
		e.Signal()
		<-e.Turn.left
	}
}

// Stop stops polling and closes all ifaces. The transports then have no operation in flight any more.
func (e *Engine) Stop() (errs []error) {
	e.stopped = true
	for _, i := range slices.Backward(e.ifaces) {
		errs = append(errs, i.Close())
	}
	return errs
}

// Close releases the rest of the engine after Stop. Calls that wait then return ErrClosed.
func (e *Engine) Close() (err error) {
	e.Alarm.stop()
	e.setHot(noPoller{}, quiet, false)
	e.draining, e.idle, e.unflagged, e.resting = nil, nil, nil, nil
	if e.park != nil {
		err = e.park.close()
	}
	close(e.Turn.closed)
	return err
}

// EndClose releases the lock of BeginClose.
func (e *Engine) EndClose() { e.Turn.mu.Unlock() }
