package ucp

import (
	"context"
	"fmt"
	"runtime"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// yieldPolls is how many idle polls a waiter does between two yields to other
// goroutines: often enough for peers of the same process, seldom enough not to cost
// (a yield is some 100 ns, a poll 5 to 50).
const yieldPolls = 64

// Wait makes progress until the operation has ended or ctx has, and returns how it
// ended; the request is then given back. It spins, yields, and then parks. If ctx
// ends first, its error is returned and the request goes on: wait again, or
// Release it.
func (r *Request) Wait(ctx context.Context) error {
	if err := r.worker.until(ctx, r.Done); err != nil {
		return err
	}
	err := r.err()
	r.Release()
	return err
}

// until makes progress until done reports true.
func (w *Worker) until(ctx context.Context, done func() bool) error {
	for idle := 0; !done(); {
		if w.Progress() > 0 {
			idle = 0
			continue
		}
		if idle++; idle%yieldPolls != 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		runtime.Gosched()
		if w.cfg.SpinPolls > 0 && idle >= w.cfg.SpinPolls {
			if err := w.sleep(ctx, done); err != nil {
				return err
			}
			idle = w.cfg.SpinPolls - yieldPolls // one more round, then park again
		}
	}
	return nil
}

// finish waits for the request of a blocking form. If ctx ends first, what was not
// posted is canceled, and the data of a get is dropped.
func finish(ctx context.Context, r *Request, err error) error {
	if r == nil || err != nil {
		return err
	}
	if err := r.worker.until(ctx, r.Done); err != nil {
		r.giveUp()
		return err
	}
	err = r.err()
	r.Release()
	return err
}

// giveUp cancels what was not posted and forgets the rest.
func (r *Request) giveUp() {
	r.Cancel()
	r.flags |= reqDropData
	r.Release()
}

// PutWait is Put that returns when buf is the caller's again. If ctx ends first,
// its error is returned, and a buffer that moves without a copy stays in use until
// the EP is flushed or closed.
func (e *EP) PutWait(ctx context.Context, buf []byte, raddr uint64, key *RKey, p *OpParams) error {
	r, err := e.Put(buf, raddr, key, p)
	return finish(ctx, r, err)
}

// GetWait is Get that returns when the data is there. If ctx ends first: as
// [EP.PutWait].
func (e *EP) GetWait(ctx context.Context, buf []byte, raddr uint64, key *RKey, p *OpParams) error {
	r, err := e.Get(buf, raddr, key, p)
	return finish(ctx, r, err)
}

// AtomicFetchWait is AtomicFetch that returns the old value.
func (e *EP) AtomicFetchWait(ctx context.Context, op uct.AtomicOp, size int, value, raddr uint64, key *RKey) (old uint64, err error) {
	result := &e.w.scratch
	r, err := e.AtomicFetch(op, size, value, result, raddr, key)
	err = finish(ctx, r, err)
	return *result, err
}

// AtomicCSwapWait is AtomicCSwap that returns the old value.
func (e *EP) AtomicCSwapWait(ctx context.Context, size int, compare, swap, raddr uint64, key *RKey) (old uint64, err error) {
	result := &e.w.scratch
	r, err := e.AtomicCSwap(size, compare, swap, result, raddr, key)
	err = finish(ctx, r, err)
	return *result, err
}

// FlushWait is Flush that returns when everything is complete at the peer.
func (e *EP) FlushWait(ctx context.Context) error {
	if e.flushSoon() {
		return nil
	}
	r, err := e.Flush()
	return finish(ctx, r, err)
}

// flushLooks is how often a blocking flush looks at its lane before it makes a
// request: a software device is done at the first look, a fast network within a
// microsecond.
const flushLooks = 64

// flushSoon reports whether everything was complete within a few looks at the only
// lane. Where there are several, or operations wait, it does not look.
func (e *EP) flushSoon() bool {
	for range flushLooks {
		x := e.link.only()
		if x == nil || e.first != nil || e.state != epOpen {
			return false
		}
		if pending, err := x.ep.Flush(nil); err != nil || !pending {
			return err == nil
		}
		e.w.Progress()
	}
	return false
}

// CloseWait is Close that returns when the EP is closed. If ctx ends first, the EP
// goes on closing.
func (e *EP) CloseWait(ctx context.Context, mode CloseMode) error {
	r, err := e.Close(mode)
	return finish(ctx, r, err)
}

// FlushWait is Flush that returns when everything is complete at the peers.
func (w *Worker) FlushWait(ctx context.Context) error {
	r, err := w.Flush()
	return finish(ctx, r, err)
}

// Serve makes progress until ctx ends, and returns its error. A worker that is
// only a target can be served by a goroutine of its own, which then owns it.
func (w *Worker) Serve(ctx context.Context) error {
	if w.closed {
		return errWorkerClosed
	}
	return w.until(ctx, never)
}

func never() bool { return false }

var errWorkerClosed = fmt.Errorf("ucp: worker: %w", ucs.ErrClosed)
