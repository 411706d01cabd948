package ucp

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/ucp/internal/engine"
	"github.com/gucx/gucx/ucs"
)

// errGivenUp fails an EP whose transport keeps the buffer of a call that has ended.
var errGivenUp = fmt.Errorf("%w: a transport kept the buffer of a call that was given up", ucs.ErrCanceled)

// giveUp ends the request of a blocking form whose context has ended. What was not posted
// is not posted any more, and when giveUp returns no transport reads or writes the caller's
// buffer. It waits for that as until does.
func (r *Request) giveUp(until untilFunc) {
	r.Cancel()
	r.flags |= reqGivenUp
	if c := r.stage.class; c != nil && c.abandon != nil {
		c.abandon(r)
	}
	if r.lent() {
		r.awaitBuffer(until)
	}
	r.Release()
}

// untilFunc makes progress until done reports true: Engine.Until, or SharedWorker.wait.
type untilFunc func(ctx context.Context, done func() bool) error

// awaitBuffer waits until the transports have let go of the caller's buffer. One that has
// not within Worker.lendLimit has to, as the EP fails. The time in which the process stands still
// does not count: the transport and the peer may have stood still with it.
func (r *Request) awaitBuffer(until untilFunc) {
	w := r.worker
	back := func() bool { return !r.lent() }
	if w.awaitLent(until, back) {
		return
	}
	r.ep.fail(ucs.StatusCanceled, errGivenUp, nil)
	for !back() { // the lanes are closed: a transport takes microseconds
		w.Progress()
		runtime.Gosched()
	}
}

// awaitLent has until wait for lendLimit, and reports whether it is done.
func (w *Worker) awaitLent(until untilFunc, done func() bool) bool {
	for limit := timelimit.New(w.lendLimit); ; {
		ctx, cancel := context.WithTimeout(context.Background(), w.lendLimit/timelimit.Looks)
		err := until(ctx, done)
		cancel()
		if err == nil {
			return true
		}
		if !errors.Is(err, context.DeadlineExceeded) || limit.Over() {
			return w.catchUp(done)
		}
	}
}

// catchUp makes progress after a time limit, and reports whether done is true then: this process may
// have been stopped meanwhile, and what it waited for have come long ago.
func (w *Worker) catchUp(done func() bool) bool {
	for range engine.YieldPolls {
		if w.Progress(); done() {
			return true
		}
	}
	return false
}
