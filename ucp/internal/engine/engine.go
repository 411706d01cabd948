// Package engine makes progress for a worker: it polls the ifaces with endpoints, checks
// the events of the others, runs deferred work and timers, and implements spinning, yielding and parking
// in blocking calls. It knows ifaces, but not the endpoints over them.
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

// Owner is the worker that owns an engine.
type Owner interface {
	// Work does the work that callbacks have deferred, outside of any callback, and returns the number of items;
	// see Raise.
	Work() int
	// Alarm handles the timeouts that are due at now, and sets the alarm again.
	Alarm(now time.Duration)
}

// Engine makes progress for one owner. One goroutine at a time owns it; any goroutine may call Signal and Post.
// Init must be called first.
type Engine struct {
	// Ticks and Run are for the owner's Progress, which calls Run directly.
	Ticks uint64    // number of calls of Progress that only poll before the next one that does all work; due if that is the next one
	Run   [2]poller // the pollers that Progress calls, by the highest bit of Ticks; neither is nil

	hot        poller        // polls all polled ifaces; never nil
	watch      *ucs.Watch    // watch on hot; nil if there is none
	inside     bool          // a goroutine makes progress
	slow       bool          // there is work besides polling; see Raise
	pollIdle   bool          // ifaces without endpoints are polled too
	stopped    bool          // no iface is polled: they are closed or being closed
	polled     int           // ifaces that are polled
	kernel     bool          // a poll of one of them makes a system call
	draining   []*Iface      // ifaces that are polled at the periodic checks
	idle       []*Iface      // resting ifaces with a flag for events
	unflagged  []*Iface      // resting ifaces without a flag
	eventFDs   []unix.PollFd // descriptors of unflagged
	idleChecks uint          // number of calls of checkIdle
	ifaces     []*Iface
	armed      []*Iface     // ifaces at the latest sleep; used by the goroutine that parks
	pushers    []uct.Pusher // pushers of the ifaces that have one
	resting    []*Iface     // ifaces that the next Progress lets rest
	owner      Owner

	// Spin, Turn and Alarm are parts of the engine.
	Spin  Spinner
	Turn  Turn
	Alarm Alarm
	// ParkLimit limits one sleep.
	ParkLimit time.Duration
	// Sleeps counts the sleeps of blocking calls.
	Sleeps stats.Counter

	posted atomic.Bool // stored by Post and Park; pairs with the load in runAll
	woke   atomic.Bool // some Iface.woke is set; stored by Park, pairs with the swap in pollWoken

	sleeping atomic.Bool // Signal has an effect: a goroutine sleeps or is about to, or exposed is set
	exposed  bool        // the owner may wait on EventFD

	parkMu sync.Mutex // Signal reads park from any goroutine
	park   *parker    // nil until the first sleep
}

// Init initializes the engine of owner. spinPolls is the number of polls of a blocking call before it
// parks; 0 adapts it, a negative value never parks. With pollIdle, Progress also polls ifaces without endpoints.
func (e *Engine) Init(owner Owner, spinPolls int, pollIdle bool) {
	e.owner, e.pollIdle, e.ParkLimit = owner, pollIdle, parkLimit
	e.Run[1] = (*fullPoller)(e)
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

// enter records that a goroutine makes progress, to detect a call of Progress by a second goroutine or a callback. As for
// concurrent writes to a map, detection is likely, not certain, and costs nothing.
func (e *Engine) enter() {
	if e.inside {
		panic(uct.TwoAtOnce)
	}
	e.inside = true
}

// InProgress reports whether Progress runs now. It may report false while Progress polls an iface with uct.IfaceExt.Guarded.
func (e *Engine) InProgress() bool { return e.inside }

// setHot sets the poller. If the only polled iface has no watch and itself detects concurrent polls,
// Progress calls it directly.
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

// fullPoller is an engine whose Progress does all work, and not only polls.
type fullPoller Engine

func (f *fullPoller) Progress() int { return (*Engine)(f).runAll() }

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

func (w *watched) Progress() int { // repeats unguarded.Progress, because a call would cost time
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

// manyPollers polls several ifaces, one after the other.
type manyPollers []poller

func (s manyPollers) Progress() (n int) {
	for _, i := range s {
		n += i.Progress()
	}
	return n
}

// quiet is a watch that is always idle.
var (
	quietValue uint32
	quiet      = &ucs.Watch{Word: &quietValue, Attention: &quietValue}
)

// watchOf returns the watch of an iface; nil if it has none.
func watchOf(i *uct.IfaceExt) *ucs.Watch {
	if i.Watch == nil {
		return nil
	}
	return i.Watch.Watch()
}

// IdleTicks is the number of calls of Progress between two checks of the flags of
// resting ifaces while others are polled. The interval can be long, because only new connections and the last
// acknowledgements of handshakes arrive on resting ifaces.
const IdleTicks = 64

// due is the value of Ticks for which the next call of Progress does all work. If Ticks is not set then, later calls
// do all work too.
const due = 1<<64 - 1

// runAll is Progress with the work that most calls omit.
func (e *Engine) runAll() (n int) {
	e.enter()
	if e.Alarm.due.Load() {
		e.Alarm.handleDue()
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

// Polled returns the number of ifaces that each Progress polls.
func (e *Engine) Polled() int { return e.polled }

// Leave ends a blocking call, as Turn.Release does. As a deferred call it also runs after a panic of a
// callback, so that closing the worker does not wait for the blocking call. The data path does not use it,
// because it defers no calls.
func (e *Engine) Leave() {
	e.inside = false
	e.Turn.Release()
}

// BeginClose ends the blocking call in progress, if there is one, and
// prevents further blocking calls. It acquires a lock, which EndClose releases: the caller must call
// EndClose when the worker is closed.
func (e *Engine) BeginClose() {
	e.Turn.mu.Lock()
	if e.Turn.state.Or(turnClosing)&turnTaken != 0 {
		e.Signal()
		<-e.Turn.left
	}
}

// Stop stops polling and closes all ifaces. Afterwards no operation of a transport is in flight.
func (e *Engine) Stop() (errs []error) {
	e.stopped, e.pushers = true, nil
	for _, i := range slices.Backward(e.ifaces) {
		errs = append(errs, i.Close())
	}
	return errs
}

// Close releases the other resources of the engine after Stop. Calls that wait then return ErrClosed.
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
