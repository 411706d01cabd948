package rccore

import (
	"errors"
	"slices"

	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// A completion queue that has overrun, or to which the device cannot write, stays in the error
// state (IBTA volume 1, 10.10.2.3). No completion of a work request in flight arrives any more, nor
// of a flushed one. So all EPs fail, and the package completes their operations when the device no
// longer uses their memory.

// errCQ is the cause of the failure of an EP whose completion queue has failed.
var errCQ = errors.New("the completion queue has failed")

// ErrCQLost is the error of operations that need a completion queue after it has failed.
var ErrCQLost = ucs.Because(ucs.StatusIOError, errCQ)

// handleCQError fails all EPs after an error of the completion queue. Only the first call does. It calls
// completions.
func (it *Iface) handleCQError() {
	if it.cqLost {
		return
	}
	it.cqLost = true
	if it.links != nil {
		it.links.HandleCQError()
	}
	for _, e := range slices.Concat(it.open.All(), it.closing.All()) {
		it.fail(e, ucs.StatusIOError, errCQ)
		e.resetAndCancel()
	}
	if it.ext != nil {
		it.ext.HandleCQError()
	}
}

// resetAndCancel completes operations of an EP whose completions from the device do not arrive.
func (e *EP) resetAndCancel() {
	e.disconnectLimit, e.disconnectPending = timelimit.Limit{}, false
	if !e.link.Shared() {
		_ = e.link.(*QPLink).reset() // if the device refuses, the whole device has failed
	}
	e.CancelOps()
	e.releaseWhenIdle()
}

// reset moves the QP to RESET: the device discards all work requests and uses no memory of them any
// more.
func (l *QPLink) reset() error {
	return l.QP.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState)
}
