// Package engine makes progress: it polls the ifaces over which something is connected,
// looks at the events of those that rest, runs deferred work and timers, and has blocking
// calls spin, yield and park. It knows ifaces and nothing of what is connected over them.
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

// Owner is what an engine works for.
type Owner interface {
	// Work does what callbacks have left behind, outside of any of them, and returns how
	// much that was; see Raise.
	Work() int
	// Alarm goes on with what waits for a time not after now, and sets the alarm again.
	Alarm(now time.Duration)
}

// Engine makes progress for one owner. One goroutine at a time owns it; only Signal may be
// called by any. Init comes first.
type Engine struct {
	// These are for a Progress that has no call to spare; see there.
	Ticks uint64    // so many calls of Progress, and one, poll only; due if none does
	Run   [2]poller // what Progress calls, by the highest bit of Ticks; neither is nil

	hot       poller        // the iface that is polled, or all of them; never nil
	watch     *ucs.Watch    // on hot; nil if there is none
	inside    bool          // a goroutine makes progress
	slow      bool          // there is more to do than to poll; see Raise
	pollIdle  bool          // ifaces on which nothing is connected are polled too
	stopped   bool          // no iface is polled any more: they are closed, or about to be
	polled    int           // ifaces that are polled
	kernel    bool          // one of them asks the kernel at each poll
	draining  []*Iface      // ifaces that are polled now and then
	idle      []*Iface      // ifaces that rest and have a flag
	unflagged []*Iface      // ifaces that rest and have none
	eventFDs  []unix.PollFd // their descriptors
	looks     uint          // calls of lookAtIdle
	ifaces    []*Iface
	asked     []*Iface     // for events, before the last sleep; of the goroutine that parks
	pushers   []uct.Pusher // of those that have one
	resting   []*Iface     // lost their last endpoint
	owner     Owner

	// Spin, Turn and Alarm are parts of the engine.
	Spin  Spinner
	Turn  Turn
	Alarm Alarm
	// ParkLimit bounds one sleep.
	ParkLimit time.Duration
	// Sleeps counts waits that had the kernel put the goroutine to sleep.
	Sleeps stats.Counter

	posted atomic.Bool // stored by Post and Park; pairs with the load in runAll
	woke   atomic.Bool // some Iface.woke is set; stored by Park, pairs with the swap in pollWoken

	parkMu sync.Mutex // Signal reads park from any goroutine
	park   *parker    // nil until the first sleep
}

// Init makes the engine of owner. spinPolls is how often a blocking call polls before it
// parks; 0 adapts, negative never parks. With pollIdle also ifaces are polled on which
// nothing is connected.
func (e *Engine) Init(owner Owner, spinPolls int, pollIdle bool) {
	e.owner, e.pollIdle, e.ParkLimit = owner, pollIdle, parkLimit
	e.Run[1] = (*all)(e)
	e.setHot(nothing{}, quiet, false)
	e.Spin.Fixed = spinPolls
	e.Turn.init()
	e.Alarm.e = e
}

// Start lets the ifaces rest on which nothing is connected yet: all.
func (e *Engine) Start() {
	for _, i := range e.ifaces {
		i.rest()
	}
}

// Progress completes operations and delivers what arrived. It returns how much happened.
// It panics if it finds that it runs already.
func (e *Engine) Progress() int {
	t := e.Ticks
	e.Ticks--
	return e.Run[t>>63].Progress()
}

// HasPushers reports that Push may have something to do.
func (e *Engine) HasPushers() bool { return len(e.pushers) > 0 }

// Push sends what the ifaces have joined.
func (e *Engine) Push() {
	for _, p := range e.pushers {
		p.Push()
	}
}

// enter notes that a goroutine makes progress. Another one that does, or a callback, is
// found as writes to a map are: often, and at no cost.
func (e *Engine) enter() {
	if e.inside {
		panic(uct.TwoAtOnce)
	}
	e.inside = true
}

// setHot sets what is polled. An iface that finds by itself when two goroutines poll it, and
// has no watch, is polled without more ado.
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

// all is an engine of which a call of Progress does all that it may.
type all Engine

func (a *all) Progress() int { return (*Engine)(a).runAll() }

// unguarded is an engine whose iface does not find when two goroutines poll it.
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

// nothing stands for the polled iface where there is none.
type nothing struct{}

func (nothing) Progress() int { return 0 }

// several are polled one after the other.
type several []poller

func (s several) Progress() (n int) {
	for _, i := range s {
		n += i.Progress()
	}
	return n
}

// quiet watches nothing.
var (
	quietWord uint32
	quiet     = &ucs.Watch{Word: &quietWord, Attention: &quietWord}
)

// watchOf is the watch on an iface with these abilities; nil if there is none.
func watchOf(i *uct.IfaceExt) *ucs.Watch {
	if i.Watch == nil {
		return nil
	}
	return i.Watch.Watch()
}

// IdleTicks is how many calls of Progress go by between two looks at the flags of
// resting ifaces while others are polled. Only new connections come that way, and the last
// acknowledgements of handshakes.
const IdleTicks = 64

// due is Ticks when the next call of Progress is to look at everything. What it is less than that
// after more calls makes no difference.
const due = 1<<64 - 1

// runAll is Progress with all that is not done each time.
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
	n += e.lookAtIdle()
	e.inside = false
	return n
}

// work handles what callbacks have left behind.
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

// Raise has the next Run call the owner's Work.
func (e *Engine) Raise() { e.slow, e.Ticks = true, due }

// Post has one of the next Runs call the owner's Work, and wakes the goroutine that waits in
// a blocking call. Any goroutine.
func (e *Engine) Post() {
	e.posted.Store(true)
	e.Signal()
}

// Polled is how many ifaces each Progress polls.
func (e *Engine) Polled() int { return e.polled }

// Quiet reports that the only polled iface shows that it has nothing to do, or that none is
// polled.
func (e *Engine) Quiet() bool { return e.watch != nil && e.watch.Idle() }

// Leave ends a blocking call as Turn.Give does, also where a callback has left it by a panic: who
// closes the worker then, as deferred calls do, does not wait for that call. It is for calls that are
// no data path, as only a deferred call is run then.
func (e *Engine) Leave() {
	e.inside = false
	e.Turn.Give()
}

// BeginClose ends the blocking call that the owner's goroutine is in, if it is in one, and
// keeps other blocking calls from beginning. It holds a lock until EndClose, which the caller
// calls when the worker is closed.
func (e *Engine) BeginClose() {
	e.Turn.mu.Lock()
	if e.Turn.state.Or(turnClosing)&turnTaken != 0 {
		e.Signal()
		<-e.Turn.left
	}
}

// Stop polls no iface any more, and closes all of them: the transports let go of all
// operations.
func (e *Engine) Stop() (errs []error) {
	e.stopped = true
	for _, i := range slices.Backward(e.ifaces) {
		errs = append(errs, i.Close())
	}
	return errs
}

// Close ends what Stop has left. Then calls that wait return ErrClosed.
func (e *Engine) Close() (err error) {
	e.Alarm.stop()
	e.setHot(nothing{}, quiet, false)
	e.draining, e.idle, e.unflagged, e.resting = nil, nil, nil, nil
	if e.park != nil {
		err = e.park.close()
	}
	close(e.Turn.closed)
	return err
}

// EndClose lets go of the lock of BeginClose.
func (e *Engine) EndClose() { e.Turn.mu.Unlock() }
