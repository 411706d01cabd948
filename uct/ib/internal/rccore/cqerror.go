package rccore

import (
	"errors"
	"slices"

	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// A completion queue that has overrun, or that the device cannot write to, is in error for good
// (IBTA volume 1, 10.10.2.3). Completions of what is in flight do not come, also of what is flushed.
// So all EPs fail, and what they have in flight ends here, when the device has let go of it.

// errCQ is the cause where an EP fails as there is no completion queue any more.
var errCQ = errors.New("the completion queue has failed")

// ErrCQLost is the error of what needs a completion queue.
var ErrCQLost = ucs.Because(ucs.StatusIOError, errCQ)

// cqFailed ends all EPs after an error of the completion queue, once. Completions run.
func (it *Iface) cqFailed() {
	if it.cqLost {
		return
	}
	it.cqLost = true
	if it.links != nil {
		it.links.Lost()
	}
	for _, e := range slices.Concat(it.open.All(), it.closing.All()) {
		it.fail(e, ucs.StatusIOError, errCQ)
		e.abandon()
	}
	if it.ext != nil {
		it.ext.Lost()
	}
}

// abandon ends what an EP has in flight whose completions do not come.
func (e *EP) abandon() {
	e.leaving, e.noticePending = timelimit.Limit{}, false
	if !e.link.Shared() {
		_ = e.link.(*QPLink).reset() // a device that refuses has failed as a whole
	}
	e.Canceled()
	e.releaseWhenIdle()
}

// reset has the device forget what was posted: it uses no memory for it any more.
func (l *QPLink) reset() error {
	return l.QP.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState)
}
