package ucp

import (
	"context"

	"github.com/gucx/gucx/uct"
)

// Wait makes progress until the operation is complete, returns its result and releases the
// request. It spins, yields, and then parks. If ctx
// is done first, Wait returns its error, and the operation and the use of its buffer continue: Wait again,
// Release, Cancel and wait for that, or GiveUp. ErrClosed if the worker is closed.
func (r *Request) Wait(ctx context.Context) error {
	if r == nil {
		return nil
	}
	w := r.worker
	if err := w.engine.Turn.Take(); err != nil {
		if r.Done() {
			return r.take()
		}
		return err
	}
	var err error
	if !r.Done() {
		err = w.engine.Until(ctx, r.Done)
	}
	if err == nil {
		err = r.take()
	}
	w.endBlocking()
	return err
}

// endBlocking ends a blocking call. It first sends the messages that transports have coalesced, because the
// caller may not make progress for a while.
func (w *Worker) endBlocking() {
	w.engine.Push()
	w.engine.Turn.Release()
}

// beginBlocking begins a blocking form. It acquires the turn before the operation starts, because another
// goroutine may close the worker as soon as the call has begun. The caller must call finish.
func (w *Worker) beginBlocking() error { return w.engine.Turn.Take() }

// finishBlocking waits for the request of a blocking form, and releases the turn. If ctx is done first, it abandons the
// request.
func (w *Worker) finishBlocking(ctx context.Context, r *Request, err error) error {
	if r != nil && err == nil {
		if err = w.engine.Until(ctx, r.Done); err != nil {
			r.giveUp(w.engine.Until)
		} else {
			err = r.take()
		}
	}
	w.endBlocking()
	return err
}

// FlushWait is Flush, and returns when all operations are complete at the peer. Another goroutine must not close
// the worker during FlushWait: its first checks do not count as a blocking call, which would cost two atomic
// operations, 2 to 5 ns of a put and flush of 8 bytes.
func (e *EP) FlushWait(ctx context.Context) error {
	if e.flushSoon() {
		return nil
	}
	if err := e.w.beginBlocking(); err != nil {
		return err
	}
	r, err := e.Flush()
	return e.w.finishBlocking(ctx, r, err)
}

// flushPolls is the number of polls of its lane by a blocking flush before it makes a request: a software device has
// completed at the first poll, a fast network within a microsecond.
const flushPolls = 64

// flushSoon reports whether all operations were complete within a few polls of the only
// lane. If there are several lanes, or operations wait, it does not poll. A lane without resources for a
// flush has some after progress.
func (e *EP) flushSoon() bool {
	for range flushPolls {
		x := e.link.only()
		if x == nil || e.ops.first != nil || e.state != epOpen {
			return false
		}
		pending, err := x.EP.Flush(nil)
		if err != uct.ErrNoResource && (err != nil || !pending) {
			return err == nil
		}
		e.w.Progress()
	}
	return false
}

// CloseWait is Close, and returns when the EP is closed. If ctx is done first, it returns the error of ctx and the EP
// continues closing.
func (e *EP) CloseWait(ctx context.Context, mode CloseMode) error {
	if err := e.w.beginBlocking(); err != nil {
		return err
	}
	r, err := e.Close(mode)
	return e.w.finishBlocking(ctx, r, err)
}

// FlushWait is [Worker.Flush], and returns when all operations issued before on all EPs are complete at the
// peers. It makes progress. If ctx is done first, it returns the error of ctx, and the operations continue. Other
// errors: ErrClosed; the reason of an EP that failed while it was flushed.
func (w *Worker) FlushWait(ctx context.Context) error {
	if err := w.beginBlocking(); err != nil {
		return err
	}
	r, err := w.Flush()
	return w.finishBlocking(ctx, r, err)
}

// Serve makes progress until ctx is done, and returns the error of ctx, or until the worker is
// closed, and returns an error that wraps ErrClosed. A goroutine of its own can
// serve a worker that is only a target; it then owns the worker.
func (w *Worker) Serve(ctx context.Context) error {
	if err := w.engine.Turn.Take(); err != nil {
		return err
	}
	defer w.engine.Leave()
	return w.engine.Until(ctx, never)
}

func never() bool { return false }

// Until makes progress until done returns true, for layers above whose operations consist
// of several requests. done is called often, between two polls and not from a callback: it
// must be fast, and may start operations. It is not called after it has returned true, so it may
// receive from a channel. If ctx is done first, Until returns its error; if the worker is closed, an error
// that wraps ErrClosed. It spins, yields, and then parks.
func (w *Worker) Until(ctx context.Context, done func() bool) error {
	if err := w.engine.Turn.Take(); err != nil {
		return err
	}
	err := w.engine.Until(ctx, done)
	w.endBlocking()
	return err
}

// GiveUp abandons an operation, as the blocking forms do when their context
// is done: parts that were not posted are not posted any more, and the buffer belongs to the caller when GiveUp
// returns. If a transport uses the buffer, or a peer may read it because it has received an RTS,
// GiveUp waits until they have stopped, at most ucs.RevokeLimit; then the EP fails with
// ErrCanceled. A peer that makes progress stops at once. GiveUp releases the request. Callbacks must not
// call it.
func (r *Request) GiveUp() {
	if r == nil {
		return
	}
	w := r.worker
	if w.engine.Turn.Take() != nil { // the worker is closed: all operations are complete
		r.Release()
		return
	}
	defer w.endBlocking() // also when a build with invariants panics
	if r.Done() {
		r.Release()
	} else {
		r.giveUp(w.engine.Until)
	}
}
