package ucp

import (
	"context"
	"fmt"

	"github.com/gucx/gucx/ucs"
)

// tells has the caller be told of the end, if that is wanted: a request goes to the caller.
func (r *Request) tells() {
	if r.onDone != nil {
		r.flags |= reqTells
	}
}

// endedOp is an operation of whose end the caller is to be told.
type endedOp struct {
	f   func(error)
	err error
}

// endedOps are the operations of whose end callers and goroutines are to be told.
type endedOps struct {
	list, spare []endedOp
	woken       []*Request // those that have ended while a goroutine slept for them; see SharedWorker
}

// tell has the next Progress tell the caller of the end, and the SharedWorker wake who sleeps. It ends what is measured.
//
//go:noinline
func (r *Request) tell() {
	w := r.worker
	if r.flags&reqSpans != 0 {
		w.stats.spans.endOf(r)
	}
	if r.flags&reqWakes != 0 {
		w.ended.woken = append(w.ended.woken, r)
	}
	if r.flags&reqTells != 0 {
		w.ended.list = append(w.ended.list, endedOp{r.onDone, r.err()})
		r.onDone = nil
		w.engine.Raise()
	}
	r.flags &^= reqTells | reqWakes | reqSpans
}

// takeWoken returns the requests that have ended while a goroutine slept for them. The list is
// valid until the next one ends.
func (w *Worker) takeWoken() []*Request {
	woken := w.ended.woken
	w.ended.woken = w.ended.woken[:0]
	return woken
}

// tellEnded tells of the operations that have ended. What it brings about is for the next
// time.
func (w *Worker) tellEnded() int {
	ended := w.ended.list
	w.ended.list = w.ended.spare[:0]
	for _, x := range ended {
		x.f(x.err)
	}
	clear(ended)
	w.ended.spare = ended
	return len(ended)
}

// WaitAny makes progress until one of the requests has ended, and returns which, and how;
// that one is then given back, the others go on. A nil request has ended. If several have,
// it is the first of them. The index is -1 if none has: ctx has ended, whose error is
// returned; the worker was closed meanwhile (ErrClosed); there are no requests, or they are
// of several workers (ErrInvalidParam).
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

// WaitAll makes progress until all requests have ended, and returns the errors of those that
// have not ended well, joined; all are then given back. A nil request has ended well. If ctx
// ends first, its error is returned and no request is given back. Errors besides:
// ErrClosed if the worker is closed meanwhile; ErrInvalidParam if the requests are of several
// workers.
func WaitAll(ctx context.Context, reqs ...*Request) error {
	if len(reqs) == 0 {
		return nil
	}
	first := 0 // those before have ended
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

// What WaitAny and WaitAll refuse.
var (
	errNoRequests     = fmt.Errorf("ucp: wait for any: %w: there are no requests", ucs.ErrInvalidParam)
	errSeveralWorkers = fmt.Errorf("ucp: wait: %w: the requests are of several workers", ucs.ErrInvalidParam)
)

// untilEnded makes progress until done reports true of the requests, and then gives them back with
// end, while no other goroutine closes their worker.
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

// workerOf is the one that the requests are of; nil if all of them are nil.
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
