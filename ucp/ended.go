package ucp

import (
	"context"
	"fmt"

	"github.com/gucx/gucx/ucs"
)

// armOnDone makes Progress call onDone when the request completes. onDone may be nil.
func (r *Request) armOnDone() {
	if r.onDone != nil {
		r.flags |= reqOnDone
	}
}

// completedOp is an operation whose completion must be reported to the caller.
type completedOp struct {
	f   func(error)
	err error
}

// completedOps are the operations whose completion must be reported to callers and goroutines.
type completedOps struct {
	list, spare []completedOp
	woken       []*Request // completed while a goroutine slept for them; see SharedWorker
}

// queueCompletion makes the next Progress call onDone, and the SharedWorker wake the goroutine that
// waits for the request. It ends the measured spans of the request.
//
//go:noinline
func (r *Request) queueCompletion() {
	w := r.worker
	if r.flags&reqSpans != 0 {
		w.stats.spans.endOf(r)
	}
	if r.flags&reqWakes != 0 {
		w.completed.woken = append(w.completed.woken, r)
	}
	if r.flags&reqOnDone != 0 {
		w.completed.list = append(w.completed.list, completedOp{r.onDone, r.err()})
		r.onDone = nil
		w.engine.Raise()
	}
	r.flags &^= reqOnDone | reqWakes | reqSpans
}

// takeWoken returns the requests that completed while a goroutine slept for them. The list is
// valid until the next request completes.
func (w *Worker) takeWoken() []*Request {
	woken := w.completed.woken
	w.completed.woken = w.completed.woken[:0]
	return woken
}

// reportCompleted calls onDone of completed operations. Operations that complete meanwhile are
// reported by the next call.
func (w *Worker) reportCompleted() int {
	ended := w.completed.list
	w.completed.list = w.completed.spare[:0]
	for _, x := range ended {
		x.f(x.err)
	}
	clear(ended)
	w.completed.spare = ended
	return len(ended)
}

// WaitAny makes progress until one of the requests is complete, and returns its index and its result. It releases
// that request; the others continue. A nil request is complete. If several requests are complete,
// WaitAny returns the first of them. The index is -1 if none is complete: ctx is done (the error of ctx),
// the worker was closed (ErrClosed), there are no requests, or they belong to
// several workers (ErrInvalidParam). The goroutine that owns the worker must call it.
func WaitAny(ctx context.Context, reqs ...*Request) (int, error) {
	i, how := -1, error(nil)
	err := untilEnded(ctx, reqs, func() bool {
		for k, r := range reqs {
			if r == nil || r.Done() {
				i = k
				return true
			}
		}
		return false
	}, func() {
		if reqs[i] != nil {
			how = reqs[i].take()
		}
	})
	if err != nil {
		return -1, err
	}
	return i, how
}

// WaitAll makes progress until all requests are complete. It releases them and returns the errors of the failed
// requests, joined. A nil request has succeeded. If ctx is done first, WaitAll returns the error of ctx
// and releases no request. Other errors:
// ErrClosed if the worker was closed; ErrInvalidParam if the requests belong to several
// workers. The goroutine that owns the worker must call it.
func WaitAll(ctx context.Context, reqs ...*Request) error {
	if len(reqs) == 0 {
		return nil
	}
	first := 0 // requests before it have completed
	var errs []error
	err := untilEnded(ctx, reqs, func() bool {
		for first < len(reqs) && (reqs[first] == nil || reqs[first].Done()) {
			first++
		}
		return first == len(reqs)
	}, func() {
		for _, r := range reqs {
			if r != nil {
				if err := r.take(); err != nil {
					errs = append(errs, err)
				}
			}
		}
	})
	if err != nil {
		return err
	}
	return ucs.Join(errs...)
}

// Errors of WaitAny and WaitAll.
var (
	errNoRequests     = fmt.Errorf("ucp: wait for any: %w: there are no requests", ucs.ErrInvalidParam)
	errSeveralWorkers = fmt.Errorf("ucp: wait: %w: the requests are of several workers", ucs.ErrInvalidParam)
)

// untilEnded makes progress until done returns true, and then releases the requests with
// end, unless another goroutine closes their worker.
func untilEnded(ctx context.Context, reqs []*Request, done func() bool, end func()) error {
	w, err := workerOf(reqs)
	if err != nil {
		return err
	}
	if w == nil {
		done()
		end()
		return nil
	}
	closed := w.engine.Turn.Take()
	if !done() {
		if closed != nil {
			return closed
		}
		err = w.engine.Until(ctx, done)
	}
	if err == nil {
		end()
	}
	if closed == nil {
		w.endBlocking()
	}
	return err
}

// workerOf returns the worker of the requests; nil if all of them are nil.
func workerOf(reqs []*Request) (w *Worker, err error) {
	if len(reqs) == 0 {
		return nil, errNoRequests
	}
	for _, r := range reqs {
		if r != nil && w != nil && r.worker != w {
			return nil, errSeveralWorkers
		}
		if r != nil {
			w = r.worker
		}
	}
	return w, nil
}
