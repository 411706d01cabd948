package ucp

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gucx/gucx/ucp/internal/engine"
)

// inspections is the queue of functions that other goroutines pass to the owner of a worker.
type inspections struct {
	wanted atomic.Bool // the queue is not empty; stored by any goroutine, pairs with the load in runInspections

	mu     sync.Mutex
	queue  []*inspection
	closed bool
	shared *SharedWorker // the SharedWorker of the worker; nil without one
}

// inspection is a function in the queue.
type inspection struct {
	run  func(w *Worker)
	done chan struct{} // closed when the function has returned, or will not run
	ran  bool
}

var inspectProtocol = protocol{
	work:   (*Worker).runInspections,
	closed: (*Worker).endInspections,
}

// Inspect makes the owner of the worker run f, within [Worker.Progress], and returns when f has returned. f may read what the
// owner may read, such as [Worker.Info], and must neither block nor call Progress. Any goroutine except the owner may
// call Inspect. It waits while the owner makes no progress. If ctx is done first, f does not run and Inspect returns the
// error of ctx. ErrClosed if the worker is closed, or if f or an earlier function has panicked. A [SharedWorker] needs no
// goroutine that makes progress.
func (w *Worker) Inspect(ctx context.Context, f func(w *Worker)) error {
	in := &w.inspections
	call := &inspection{run: f, done: make(chan struct{})}
	in.mu.Lock()
	if in.closed {
		in.mu.Unlock()
		return engine.ErrClosed
	}
	in.queue = append(in.queue, call)
	in.wanted.Store(true)
	shared := in.shared
	in.mu.Unlock()
	w.engine.Post()
	if shared != nil {
		go shared.runInspections()
	}
	select {
	case <-call.done:
	case <-ctx.Done():
		if in.withdraw(call) {
			return ctx.Err()
		}
		<-call.done
	}
	if !call.ran {
		return engine.ErrClosed
	}
	return nil
}

// runInspections runs the queued functions. Without any it does not use the worker: another goroutine may have run them, and the
// worker may be closed since.
func (s *SharedWorker) runInspections() {
	s.acquire()
	if s.w.runInspections() == 0 {
		s.mu.Unlock()
		return
	}
	s.release()
}

// withdraw removes a call from the queue. It returns false if the owner has already taken it to run it.
func (in *inspections) withdraw(call *inspection) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	at := slices.Index(in.queue, call)
	if at < 0 {
		return false
	}
	in.queue = slices.Delete(in.queue, at, at+1)
	return true
}

// take empties the queue and returns its functions.
func (in *inspections) take() []*inspection {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.wanted.Store(false)
	queue := in.queue
	in.queue = nil
	return queue
}

// runInspections runs the queued functions, and returns their number.
func (w *Worker) runInspections() int {
	in := &w.inspections
	if !in.wanted.Load() {
		return 0
	}
	queue, next := in.take(), 0
	defer func() { // a function that panics has not returned, and later ones have not run
		for _, call := range queue[next:] {
			close(call.done)
		}
	}()
	for _, call := range queue {
		call.run(w)
		call.ran = true
		next++
		close(call.done)
	}
	return len(queue)
}

// endInspections fails the functions that have not run when the worker closes.
func (w *Worker) endInspections() {
	in := &w.inspections
	in.mu.Lock()
	in.closed = true
	in.mu.Unlock()
	for _, call := range in.take() {
		close(call.done)
	}
}
