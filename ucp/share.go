package ucp

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// SharedWorker lets several goroutines use one worker, with its EPs, keys and
// requests: they take turns under a lock. It is what MPI+threads is among the
// categories of endpoints, and what it costs. Methods may be called by any goroutine,
// but not from a callback of the worker.
type SharedWorker struct {
	mu sync.Mutex
	w  *Worker
}

// Share gives the worker to a SharedWorker, which owns it from then on: use it, and
// everything made from it, through that only, until nobody does any more and it is
// closed.
func (w *Worker) Share() *SharedWorker { return &SharedWorker{w: w} }

// Do runs f while no other goroutine has the worker. f should not block.
func (s *SharedWorker) Do(f func(w *Worker)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.w)
}

// Run starts an operation with start, which may return a request or nothing, and
// returns when that has ended, and how. Others have the worker while it waits. If ctx
// ends first, its error is returned, and the operation is given up as by the
// blocking forms of EP.
//
//	err := shared.Run(ctx, func() (*ucp.Request, error) {
//		return ep.Put(buf, raddr, key, nil)
//	})
func (s *SharedWorker) Run(ctx context.Context, start func() (*Request, error)) error {
	s.mu.Lock()
	r, err := start()
	if r == nil || err != nil {
		s.mu.Unlock()
		return err
	}
	for idle := 0; !r.Done(); {
		n := s.w.Progress()
		if r.Done() {
			break
		}
		s.mu.Unlock()
		if idle++; n > 0 {
			idle = 0
		}
		err := s.rest(ctx, idle)
		s.mu.Lock()
		if err != nil {
			r.giveUp()
			s.mu.Unlock()
			return err
		}
	}
	err = r.err()
	r.Release()
	s.mu.Unlock()
	return err
}

// restPause is how long a goroutine of a SharedWorker sleeps between two looks once it
// has looked in vain for WorkerConfig.SpinPolls: it cannot wait for the worker's
// events, which another goroutine may take.
const restPause = 50 * time.Microsecond

// rest lets others have the worker after a number of looks in vain.
func (s *SharedWorker) rest(ctx context.Context, idle int) error {
	runtime.Gosched()
	if idle%yieldPolls != 0 {
		return nil
	}
	if spin := s.w.cfg.SpinPolls; spin > 0 && idle >= spin {
		time.Sleep(restPause)
	}
	return ctx.Err()
}
