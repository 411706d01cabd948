package ucp

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gucx/gucx/ucp/internal/engine"
	"github.com/gucx/gucx/ucs"
)

// SharedWorker lets several goroutines use one worker, with its EPs, keys and
// requests: they take turns under a lock. It is the category MPI+threads of
// endpoints, and has its cost. Any goroutine may call its methods,
// but callbacks of the worker must not.
//
// One of the goroutines that are blocked in Run and Serve makes progress for all of them: it
// spins, and parks on the worker's descriptor. The others sleep until it wakes them, because
// their operation is complete or because they must make progress next. When the goroutine that makes progress returns
// with a message, it is expected to call again soon. No other goroutine makes progress in its place for up to 800 us, unless
// messages are rare or the readers of streams do not reply (see vacancy).
type SharedWorker struct {
	mu          sync.Mutex
	lockWaiters atomic.Int32 // goroutines that wait for mu; pairs with the load in drive
	w           *Worker

	// Protected by mu.
	driven         atomic.Bool // a goroutine makes progress; acquire reads it before it locks mu
	parked         bool        // that goroutine sleeps or is about to sleep, and has not been woken
	wakesOnRelease bool        // release must call wake and push: parked, or a transport joins messages
	condition      func() bool // the condition that the goroutine which makes progress waits for
	vacancy        vacancy

	// The other blocked goroutines. A goroutine that waits for a request is in byRequest: the request
	// reports its completion, so the cost does not grow with the number of waiting goroutines. Each
	// other one is in byCondition, and wakeWaiters calls its done.
	byRequest   map[*Request]*sharedWaiter
	byCondition []*sharedWaiter // the oldest first
	blocked     int             // len(byRequest) + len(byCondition)
}

// sharedWaiter is a blocked goroutine that does not make progress itself.
type sharedWaiter struct {
	done      func() bool
	wake      chan struct{} // receives when the goroutine must wake up; capacity 1
	mustDrive bool          // this goroutine must make progress next; protected by mu
}

// Share returns a SharedWorker, which then owns the worker: use the worker and
// everything made from it only through the SharedWorker, until that is closed.
func (w *Worker) Share() *SharedWorker {
	w.shared = &SharedWorker{w: w, byRequest: map[*Request]*sharedWaiter{}}
	w.shared.vacancy.replies.row = repliesAssumed
	w.shared.setParked(false)
	w.inspections.mu.Lock()
	w.inspections.shared = w.shared
	w.inspections.mu.Unlock()
	w.runInspections() // the goroutine of inspections makes progress from now on
	return w.shared
}

// Do waits until no other goroutine uses the worker and runs f. f may start operations and close EPs.
// It must not call methods of s, and should not block: all other goroutines wait for it.
func (s *SharedWorker) Do(f func(w *Worker)) {
	if s.driven.Load() { // acquire, written out because it is not inlined
		s.await()
	} else {
		s.mu.Lock()
	}
	defer s.release()
	f(s.w)
}

// Run starts an operation with start, which may return a request or nil, waits until it is complete and
// returns its result. Other goroutines can use the worker while it waits. If ctx
// is done first, Run returns its error and abandons the operation as the
// blocking forms of EP do. ErrClosed if the worker is closed. Run releases the request, so
// only one goroutine may wait for it; others check it in Until.
//
//	err := shared.Run(ctx, func() (*ucp.Request, error) {
//		return ep.Put(buf, raddr, key, nil)
//	})
func (s *SharedWorker) Run(ctx context.Context, start func() (*Request, error)) error {
	if s.driven.Load() { // acquire, written out because it is not inlined
		s.await()
	} else {
		s.mu.Lock()
	}
	defer s.release()
	r, err := start()
	if r == nil || err != nil {
		return err
	}
	if err := s.waitFor(ctx, r.Done, r); err != nil {
		r.giveUp(s.wait)
		return err
	}
	cut := r.Status() == ucs.StatusCanceled && s.w.closed
	if err = r.take(); cut {
		err = engine.ErrClosed
	}
	return err
}

// Until makes progress until done returns true. done is called often, by any goroutine that uses
// the worker, and must be fast. It is not called after it has returned true. If it changes what the done of another call
// depends on, that call may notice it only when the worker is used again. If ctx is done first,
// Until returns its error. ErrClosed if the worker is closed.
func (s *SharedWorker) Until(ctx context.Context, done func() bool) error {
	s.acquire()
	defer s.release()
	over := false
	return s.wait(ctx, func() bool {
		over = over || done()
		return over
	})
}

// StreamSend sends bytes on the EP's stream and returns when buf belongs to the caller again, as
// [EP.StreamSendWait]. Other goroutines can use the worker while it waits.
func (s *SharedWorker) StreamSend(ctx context.Context, e *EP, buf []byte) (n int, err error) {
	err = s.Run(ctx, func() (*Request, error) {
		r, err := e.streamSend(buf, nil, &n)
		if err == nil {
			s.vacancy.replies.sent(e.readsStream())
		}
		return r, err
	})
	return n, err
}

// StreamRecv receives at least one byte of the EP's stream, as [EP.StreamRecvWait]. Other goroutines
// can use the worker while it waits. A call that ctx ends may have received bytes; then n is
// not 0.
func (s *SharedWorker) StreamRecv(ctx context.Context, e *EP, buf []byte) (n int, err error) {
	err = s.Run(ctx, func() (*Request, error) {
		r, err := e.StreamRecv(buf, false, &n, nil)
		if r != nil {
			s.vacancy.replies.wait()
		}
		return r, err
	})
	return n, err
}

// Serve makes progress until ctx is done, and returns the error of ctx, or until the worker is
// closed, and returns an error that wraps ErrClosed. Other goroutines can use the worker.
func (s *SharedWorker) Serve(ctx context.Context) error {
	s.acquire()
	defer s.release()
	return s.wait(ctx, never)
}

// Close closes the worker. Goroutines that are blocked return with an error that wraps
// ErrClosed.
func (s *SharedWorker) Close() error {
	s.acquire()
	defer s.release()
	return s.w.Close()
}

// wait returns when done reports true, ctx is done or the worker is closed. The caller holds mu;
// other goroutines can lock it in between.
func (s *SharedWorker) wait(ctx context.Context, done func() bool) error {
	return s.waitFor(ctx, done, nil)
}

// waitFor is wait. If r is not nil, done reports that r is complete.
func (s *SharedWorker) waitFor(ctx context.Context, done func() bool, r *Request) error {
	for range s.checksBeforeSleep() {
		if done() {
			return nil
		}
		s.w.Progress()
	}
	for blocks := s.driven.Load(); ; blocks = true {
		if blocks {
			if drive, err := s.block(ctx, done, r); !drive {
				return err
			}
		}
		s.condition = done
		s.vacancy.fill()
		s.driven.Store(true)
		resigned, err := s.drive(ctx, done, r == nil)
		s.driven.Store(false)
		s.condition = nil
		if resigned || err == nil && r != nil && s.blocked > 0 && s.vacancy.mayBegin() {
			s.beginVacancy()
		}
		if !resigned {
			return err
		}
	}
}

// maxChecksBeforeSleep is the number of checks of a goroutine for the completion of its operation before it
// sleeps: a software device completes before the first.
const maxChecksBeforeSleep = 4

// checksBeforeSleep is maxChecksBeforeSleep, or 1 if each check makes a system call.
func (s *SharedWorker) checksBeforeSleep() int {
	if s.w.engine.Round() < engine.YieldPolls {
		return 1
	}
	return maxChecksBeforeSleep
}

// block sleeps until it is woken. It reports whether this goroutine must make progress now;
// otherwise the wait is over.
func (s *SharedWorker) block(ctx context.Context, done func() bool, r *Request) (drive bool, err error) {
	if done() {
		return false, nil
	}
	x := &sharedWaiter{done: done, wake: make(chan struct{}, 1)}
	if r != nil && s.byRequest[r] == nil {
		s.byRequest[r] = x
		r.flags |= reqWakes
	} else {
		s.byCondition = append(s.byCondition, x)
	}
	s.blocked++
	s.release()
	select {
	case <-x.wake:
	case <-ctx.Done():
	}
	s.acquire()
	if s.byRequest[r] == x {
		s.removeWaiter(r)
	} else if i := slices.Index(s.byCondition, x); i >= 0 {
		s.byCondition = slices.Delete(s.byCondition, i, i+1)
		s.blocked--
	}
	switch {
	case x.mustDrive:
		return true, nil
	case done():
		return false, nil
	}
	return false, s.stopErr(ctx)
}

// resignAfter is the number of consecutive messages for other goroutines after which a driver resigns. It is many times the
// number of connections that usually take turns, so that a driver does not resign while its own next message is in flight.
const resignAfter = 64

// drive makes progress for all until done returns true, or until it resigns because the goroutine that it has just woken will
// probably wait again soon, and can drive then. A driver that only serves others resigns at its first message for another
// goroutine. Others can use the worker between any two polls.
func (s *SharedWorker) drive(ctx context.Context, done func() bool, serves bool) (resigned bool, err error) {
	var x engine.IdleTime
	slept := false // since the last event
	woken := 0     // number of goroutines that were woken, each by an event of its own
	for polls := 0; err == nil && !done(); {
		if resigned {
			return true, nil
		}
		round := s.w.engine.Round()
		if polls == 0 { // other goroutines may have used the worker: it may be closed
			if err = s.stopErr(ctx); err != nil {
				break
			}
		}
		polls++
		if s.w.Progress() > 0 {
			s.w.engine.Spin.Found(&x)
			s.vacancy.quick, slept = !slept, false
			if s.wakeWaiters() == 1 {
				woken++
				resigned = (serves || woken >= resignAfter) && s.vacancy.mayBegin()
			}
		} else {
			x.Polls++
		}
		switch {
		case resigned: // no yield before the vacancy begins: the woken goroutine would find a driver, and block
		case x.Polls > 0 && x.Polls%round == 0:
			polls = 0
			var parked bool
			parked, err = s.pause(ctx, &x, done)
			if parked {
				slept, s.vacancy.quick = true, false
			}
		case s.lockWaiters.Load() > 0 || polls >= round:
			s.yield()
			polls = 0
		}
	}
	s.w.engine.Spin.End(&x, err == nil)
	return false, err
}

// stopErr returns the error with which progress must stop, or nil.
func (s *SharedWorker) stopErr(ctx context.Context) error {
	if s.w.closed {
		return engine.ErrClosed
	}
	return ctx.Err()
}

// yield lets others use the worker. It yields the CPU to the goroutine that it has woken; otherwise
// this goroutine would lock the mutex again first.
func (s *SharedWorker) yield() {
	s.mu.Unlock()
	runtime.Gosched()
	s.mu.Lock()
}

// pause spins, yields or parks after a round of polls without an event, and reports whether it has parked.
func (s *SharedWorker) pause(ctx context.Context, x *engine.IdleTime, done func() bool) (parked bool, err error) {
	s.wakeWaiters()
	again := s.w.engine.Spin.Again(x)
	s.yield()
	if again || s.w.closed {
		x.Yielded()
		return false, nil
	}
	ready, err := s.w.engine.ReadyToSleep(func() bool {
		s.wakeWaiters() // before the transports are armed, as conditions of waiters may start operations
		over := done()
		s.wakeCompleted()
		return over
	})
	if !ready || err != nil {
		s.wakeWaiters()
		return false, err
	}
	s.setParked(true)
	s.mu.Unlock()
	err = s.w.engine.Park(ctx)
	s.mu.Lock()
	s.setParked(false)
	if s.w.closed { // Close wakes Park, which then returns an error
		return true, nil
	}
	return true, err
}

// acquire locks the worker for a goroutine that does not make progress for all.
func (s *SharedWorker) acquire() {
	if s.driven.Load() {
		s.await()
	} else {
		s.mu.Lock()
	}
}

// await locks mu while another goroutine makes progress. lockWaiters makes that goroutine yield.
func (s *SharedWorker) await() {
	s.lockWaiters.Add(1)
	s.mu.Lock()
	s.lockWaiters.Add(-1)
}

// release unlocks the worker.
func (s *SharedWorker) release() {
	if s.blocked > 0 || s.wakesOnRelease {
		s.wake()
		s.push()
	}
	s.mu.Unlock()
}

// push sends messages that transports have joined, unless a goroutine makes progress.
func (s *SharedWorker) push() {
	if !s.driven.Load() {
		s.w.engine.Push()
	}
}

// sharedProtocol notifies a SharedWorker when its worker opens transports.
var sharedProtocol = protocol{
	ifaceOpened: func(w *Worker, _ *iface) {
		if s := w.shared; s != nil {
			s.setParked(s.parked)
		}
	},
}

// setParked sets parked and computes wakesOnRelease, which also depends on the open transports.
func (s *SharedWorker) setParked(parked bool) {
	s.parked, s.wakesOnRelease = parked, parked || s.w.engine.HasPushers()
}

// wake is called by the goroutine that uses the worker, before it unlocks the worker. It wakes
// the goroutines with complete operations. It also wakes the parked goroutine if
// its operation is complete, or if there is work that may raise no event, because it was
// posted after the transports were armed.
func (s *SharedWorker) wake() {
	s.wakeWaiters()
	if !s.parked {
		return
	}
	over := s.condition()
	s.wakeCompleted() // the condition may complete requests
	if over || !s.w.engine.StaysAsleep() {
		s.setParked(false)
		s.w.Signal()
	}
}

// wakeWaiters wakes the goroutines whose wait is over, and returns the number of those whose request is complete. If no
// goroutine makes progress and there is no vacancy, it also wakes a goroutine that must make progress. The caller holds mu.
func (s *SharedWorker) wakeWaiters() (completed int) {
	if s.blocked == 0 {
		return 0
	}
	completed = s.wakeCompleted()
	s.byCondition = slices.DeleteFunc(s.byCondition, func(x *sharedWaiter) bool {
		if !s.w.closed && !x.done() {
			return false
		}
		s.blocked--
		x.wake <- struct{}{}
		return true
	})
	completed += s.wakeCompleted() // conditions may complete requests
	if s.w.closed {
		for r, x := range s.byRequest {
			s.removeWaiter(r)
			x.wake <- struct{}{}
		}
	}
	if !s.driven.Load() && s.blocked > 0 && !s.vacancy.open {
		x := s.popWaiter()
		s.driven.Store(true)
		x.mustDrive = true
		x.wake <- struct{}{}
	}
	return completed
}

// wakeCompleted wakes the goroutines whose requests have completed, and returns their number.
func (s *SharedWorker) wakeCompleted() (completed int) {
	for _, r := range s.w.takeWoken() {
		if x := s.byRequest[r]; x != nil && r.flags&reqWakes == 0 { // the request may have been released and reused
			s.removeWaiter(r)
			x.wake <- struct{}{}
			completed++
		}
	}
	return completed
}

// popWaiter removes a blocked goroutine and returns it; there must be one.
func (s *SharedWorker) popWaiter() *sharedWaiter {
	for r, x := range s.byRequest {
		s.removeWaiter(r)
		return x
	}
	x := s.byCondition[0]
	s.byCondition = slices.Delete(s.byCondition, 0, 1)
	s.blocked--
	return x
}

// removeWaiter removes the goroutine that waits for a request from byRequest.
func (s *SharedWorker) removeWaiter(r *Request) {
	delete(s.byRequest, r)
	r.flags &^= reqWakes
	s.blocked--
}

// Dial is [Worker.Dial]. Other goroutines can use the worker while it waits.
func (s *SharedWorker) Dial(ctx context.Context, network, address string, cfg DialConfig) (*Peer, error) {
	s.mu.Lock()
	defer s.release()
	return s.w.dial(ctx, network, address, &cfg, s.wait)
}
