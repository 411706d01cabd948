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

// errGivenUp fails an EP whose transport still uses the buffer of a call that has returned.
var errGivenUp = fmt.Errorf("%w: a transport still uses the buffer of an abandoned call", ucs.ErrCanceled)

// giveUp ends the request of a blocking call whose context is done. Parts that were not posted
// are not posted any more, and when giveUp returns no transport reads or writes the caller's
// buffer. It waits for that with until.
func (r *Request) giveUp(until untilFunc) {
	r.Cancel()
	r.flags |= reqGivenUp
	if c := r.stage.class; c != nil && c.abandon != nil {
		c.abandon(r)
	}
	if r.bufferInUse() {
		r.awaitBuffer(until)
	}
	r.Release()
}

// untilFunc makes progress until done returns true: Engine.Until, or SharedWorker.wait.
type untilFunc func(ctx context.Context, done func() bool) error

// awaitBuffer waits until the transports have released the caller's buffer. After
// Worker.bufferWaitLimit it fails the EP, which makes the transport release it. Time during which the process is stopped
// does not count: the transport and the peer may have been stopped too.
func (r *Request) awaitBuffer(until untilFunc) {
	w := r.worker
	back := func() bool { return !r.bufferInUse() }
	if w.awaitRelease(until, back) {
		return
	}
	r.ep.fail(ucs.StatusCanceled, errGivenUp, nil)
	for !back() { // the lanes are closed: a transport takes microseconds
		w.Progress()
		runtime.Gosched()
	}
}

// awaitRelease calls until for at most bufferWaitLimit, and reports whether back returned true.
func (w *Worker) awaitRelease(until untilFunc, done func() bool) bool {
	for limit := timelimit.New(w.bufferWaitLimit); ; {
		ctx, cancel := context.WithTimeout(context.Background(), w.bufferWaitLimit/timelimit.Looks)
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

// catchUp makes progress after a time limit, and reports whether done returns true then: this process may
// have been stopped, and the event may have arrived long ago.
func (w *Worker) catchUp(done func() bool) bool {
	for range engine.YieldPolls {
		if w.Progress(); done() {
			return true
		}
	}
	return false
}
