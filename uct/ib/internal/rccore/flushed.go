package rccore

import (
	"slices"
	"time"

	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/ucs"
)

// If a device moves a QP to ERR without a failed work request, an event reports the cause. Events and
// completions arrive in no order: the iface may poll a flushed work request first. Its operation
// then completes when the event has arrived, with the status of the event.

// EventLimit is the maximum wait for the event, which takes microseconds, not counting time in
// which this process does not run. After it the EP fails with ErrConnReset.
const EventLimit = time.Second

// flushedEP is an EP whose work requests were flushed and whose event has not arrived.
type flushedEP struct {
	e     *EP
	upTo  uint64 // the last flushed work request; operations after CI up to it are not complete
	limit timelimit.Limit
}

// awaitCause records that the device has flushed the work requests up to upTo of an EP in state
// ready.
func (it *Iface) awaitCause(e *EP, upTo uint64) {
	for i := range it.flushed {
		if f := &it.flushed[i]; f.e == e {
			f.upTo = max(f.upTo, upTo)
			return
		}
	}
	it.flushed = append(it.flushed, flushedEP{e, upTo, timelimit.New(EventLimit)})
	it.raise(attnDeferred)
}

// hasFlushed reports whether e has flushed work requests that are not complete.
func (it *Iface) hasFlushed(e *EP) bool {
	return slices.ContainsFunc(it.flushed, func(f flushedEP) bool { return f.e == e && f.upTo > e.CI })
}

// completeFlushed fails EPs that have waited too long for the event. It completes the flushed operations of
// these and of all EPs that are no longer in state ready: the event has arrived, or they have failed for
// another reason or are closed. It calls completions.
func (it *Iface) completeFlushed() {
	for i := 0; i < len(it.flushed); {
		if f := &it.flushed[i]; f.e.state == stateReady && !f.limit.Over() {
			i++
			continue
		}
		f := it.flushed[i]
		last := len(it.flushed) - 1
		it.flushed[i], it.flushed[last] = it.flushed[last], flushedEP{}
		it.flushed = it.flushed[:last]
		it.fail(f.e, ucs.StatusConnReset, errFault)
		if f.upTo > f.e.CI {
			f.e.CI = f.upTo
			f.e.retireInOrder(ucs.StatusCanceled)
		}
	}
	if len(it.flushed) > 0 {
		it.raise(attnDeferred)
	}
}
