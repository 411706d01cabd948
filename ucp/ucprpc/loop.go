package ucprpc

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/stats"
)

// loop is a worker that any goroutine may use. One goroutine at a time drives it: it makes progress for all. A
// goroutine that waits drives the loop itself if no other one does; otherwise it submits a task, which the driver
// runs between two polls, and sleeps until the driver wakes it. When the wait of the driver is over, another waiter
// becomes the driver. So a single caller needs no switch between goroutines, and many callers share each poll.
type loop struct {
	w     *ucp.Worker
	n     *node
	stats loopStats
	shown *stats.Node // refers to stats

	revokeLimit time.Duration // how long a peer may use memory of an abandoned operation

	driven   atomic.Bool   // a goroutine drives, or there is an element in handoff
	hasTasks atomic.Bool   // there are tasks; set under mu
	waiting  atomic.Int32  // goroutines that sleep until their wait is over
	handoff  chan struct{} // has room for one: a sleeping goroutine that receives it becomes the driver
	uses     atomic.Uint32 // changes while callers drive
	watched  atomic.Bool   // serve waits for left
	left     chan struct{} // has room for one: there was no driver for a moment

	mu    sync.Mutex
	tasks []func() // for the driver, in order; under mu
	free  *slot    // under mu
	made  int      // number of slots; under mu

	// Used by the driver only.
	own       *waiter     // the wait of the driver; nil if it only serves
	ran       []func()    // the tasks before these, of which submit uses the memory
	woken     int         // goroutines that the driver has woken since it last yielded
	yieldAt   int         // woken when isReady was called last
	polled    bool        // isReady was called since drive has run tasks
	closed    bool        // the worker is closed
	connects  bool        // a client connects: messages may arrive before Dial returns
	ready     func() bool // isReady
	slots     []*slot     // by index
	flushes   []*slot     // slots that wait for a flush
	active    int         // slots with an operation in progress
	inFlight  int         // calls of peers without a reply
	bytes     int64       // bytes that these calls use
	peers     map[*ucp.EP]*Peer
	connected atomic.Int64  // length of peers
	listener  *ucp.Listener // of a server
	freeCalls *Call
	draining  bool            // of a server that shuts down
	quiet     []chan struct{} // closed when no call is in progress
	running   sync.WaitGroup  // goroutines of this loop
}

// waiter is a goroutine that waits.
type waiter struct {
	begin, abandon func()        // begin the wait, and make it end; abandon has no effect the second time, and after the wait
	wake           chan struct{} // has room for one
	done           bool          // the wait is over; only the driver uses it until the waiter is woken
}

func newWaiter(begin, abandon func()) waiter {
	return waiter{begin: begin, abandon: abandon, wake: make(chan struct{}, 1)}
}

// newLoop returns a loop with a new worker.
func (n *node) newLoop(cfg ucp.WorkerConfig) (*loop, error) {
	w, err := n.c.NewWorker(cfg)
	if err != nil {
		return nil, err
	}
	l := &loop{
		w: w, n: n, shown: n.stats.Child("worker"), revokeLimit: ucs.RevokeLimit,
		handoff: make(chan struct{}, 1), left: make(chan struct{}, 1), peers: map[*ucp.EP]*Peer{},
	}
	l.ready = l.isReady
	w.OnActive(amID, l.handle)
	l.stats.addTo(l.shown)
	return l, nil
}

// acquire makes the caller the driver if there is none.
func (l *loop) acquire() bool { return !l.driven.Load() && l.driven.CompareAndSwap(false, true) }

// submit makes the driver run f. Any goroutine may call it.
func (l *loop) submit(f func()) {
	l.mu.Lock()
	l.tasks = append(l.tasks, f)
	l.hasTasks.Store(true)
	l.mu.Unlock()
	l.w.Signal()
}

// startTask submits a task that no goroutine waits for.
func (l *loop) startTask(f func()) {
	l.submit(f)
	l.ensureDriver()
}

// ensureDriver starts a goroutine that drives until another one waits, unless there is a driver.
func (l *loop) ensureDriver() {
	if l.acquire() {
		go func() {
			_ = l.drive(context.Background())
			l.release()
		}()
	}
}

// runTasks runs the submitted tasks in order.
func (l *loop) runTasks() {
	if !l.hasTasks.Load() {
		return
	}
	l.mu.Lock()
	tasks := l.tasks
	l.tasks = l.ran[:0]
	l.hasTasks.Store(false)
	l.mu.Unlock()
	for _, f := range tasks {
		f()
	}
	clear(tasks)
	l.ran = tasks
}

// await starts w on the loop and returns when w is done. If ctx is done first, it abandons w on the loop.
func (l *loop) await(ctx context.Context, w *waiter) {
	if l.acquire() {
		l.own = w
		l.runTasks()
		w.begin()
		l.driveOwn(ctx)
		return
	}
	l.waiting.Add(1) // before the task, which release looks for
	l.submit(w.begin)
	for drives, canceled := l.acquire(), ctx.Done(); !drives; {
		select {
		case <-w.wake:
			return
		case <-l.handoff:
			drives = true
		case <-canceled:
			canceled = nil
			l.submit(w.abandon)
			drives = l.acquire() // the previous driver may have ended the wait and returned without running abandon
		}
	}
	if w.done { // the previous driver has ended the wait
		<-w.wake
	} else {
		l.waiting.Add(-1)
	}
	l.own = w
	l.driveOwn(ctx)
}

// completeWait ends the wait of w. Only the driver may call it.
func (l *loop) completeWait(w *waiter) {
	w.done = true
	if w != l.own {
		l.waiting.Add(-1)
		l.woken++
		w.wake <- struct{}{}
	}
}

// driveOwn drives until the wait of the driver is done. If ctx is done first, it abandons the wait.
func (l *loop) driveOwn(ctx context.Context) {
	if l.drive(ctx) != nil {
		l.own.abandon()
		_ = l.drive(context.Background()) // ends with the wait
	}
	l.own = nil
	l.release()
}

// release makes a sleeping goroutine the driver instead of the caller; if none sleeps and there are no tasks, there is no driver.
func (l *loop) release() {
	l.uses.Add(1)
	if l.waiting.Load() > 0 { // only a driver decreases it, so one of them receives
		l.handoff <- struct{}{}
		return
	}
	l.driven.Store(false)
	if l.watched.Load() { // pairs with the store in awaitLeft
		select {
		case l.left <- struct{}{}:
		default:
		}
	}
	if l.hasTasks.Load() { // for example of a goroutine that began to wait before this
		l.ensureDriver()
	}
}

// awaitLeft waits until there is no driver.
func (l *loop) awaitLeft() {
	l.watched.Store(true)
	if l.driven.Load() {
		<-l.left
	}
	l.watched.Store(false)
}

// drive makes progress until the wait of the driver is done; without one, until the loop is closed or, at a client, another
// goroutine waits. If ctx is done first, it returns the error of ctx.
func (l *loop) drive(ctx context.Context) error {
	for {
		l.runTasks()
		l.polled = false
		err := l.w.Until(ctx, l.ready) // also if it returns at once: it sends what the tasks have posted
		switch {
		case l.closed, l.own != nil && l.own.done, l.own == nil && !l.n.serves && l.waiting.Load() > 0:
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil: // Until does not look at ctx if it has work soon
			return ctx.Err()
		}
	}
}

// isReady reports whether the driver has work besides progress: its wait is done, or there are tasks. It is called before and
// between polls. Before the first poll it ignores tasks, because each task may submit the next one.
func (l *loop) isReady() bool {
	l.completeFlushes()
	if l.woken > 0 && l.woken == l.yieldAt { // the latest poll has woken none; those that were woken may submit more
		l.woken = 0
		runtime.Gosched()
	}
	l.yieldAt = l.woken
	polled := l.polled
	l.polled = true
	return l.own != nil && l.own.done || polled && l.hasTasks.Load()
}

// watchInterval is the time from the latest call of a client until its own goroutine drives the loop.
const watchInterval = time.Millisecond

// serve drives the loop until it is closed. At a client it does so only while there are no callers, because callers that
// drive need no switch between goroutines. While one of them drives for a long call, it sleeps.
func (l *loop) serve() {
	for seen := l.uses.Load(); ; time.Sleep(watchInterval) {
		idle := l.n.serves || l.uses.Load() == seen
		switch {
		case idle && l.acquire():
			_ = l.drive(context.Background())
			closed := l.closed
			l.release()
			if closed {
				return
			}
		case idle:
			l.awaitLeft()
		}
		seen = l.uses.Load()
	}
}

// runOnLoop runs f in the driver, outside of callbacks, and waits until f has returned.
func (l *loop) runOnLoop(f func()) {
	var w waiter
	w = newWaiter(func() { f(); l.completeWait(&w) }, nil)
	l.await(context.Background(), &w)
}

// awaitQuiet waits until no call is in progress in either direction and no call can arrive, or ctx is done.
func (l *loop) awaitQuiet(ctx context.Context) {
	quiet := make(chan struct{})
	l.runOnLoop(func() {
		l.quiet = append(l.quiet, quiet)
		l.checkQuiet()
	})
	select {
	case <-quiet:
	case <-ctx.Done():
	}
}

// checkQuiet ends the waits of awaitQuiet when no call is in progress. A server also waits until its peers have disconnected,
// because a peer may have sent requests before it received the drain message.
func (l *loop) checkQuiet() {
	if l.active > 0 || l.inFlight > 0 || l.draining && len(l.peers) > 0 {
		return
	}
	for _, quiet := range l.quiet {
		close(quiet)
	}
	l.quiet = nil
}

// flushLimit limits how long close waits until the last messages are sent.
const flushLimit = time.Second

// close closes the worker and waits for the goroutines of the loop.
func (l *loop) close() error {
	err := l.closeWorker()
	l.running.Wait()
	return err
}

// closeWorker fails all calls, ends the contexts of all handlers, and closes the worker.
func (l *loop) closeWorker() (err error) {
	l.runOnLoop(func() {
		if l.closed {
			return
		}
		lost := &Error{Code: CodeLost, Err: disconnected}
		for _, s := range l.slots {
			s.abandon(lost) // otherwise the flush may wait until a peer receives a large request
		}
		ctx, cancel := context.WithTimeout(context.Background(), flushLimit)
		_ = l.w.FlushWait(ctx) // otherwise peers do not get the last replies
		cancel()
		for _, p := range l.peers {
			l.dropPeer(p, disconnected)
		}
		err = l.w.Close() // completes all requests
		l.completeFlushes()
		l.closed = true
		l.active, l.inFlight = 0, 0 // later calls of a running handler fail
		l.n.removeStats(l)
		l.checkQuiet()
	})
	return err
}
