package rccore

import (
	"slices"
	"time"

	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/ucs"
)

// A device that moves a QP to ERR by itself says why by an event, unless a failed work request
// does. Events and completions come by different ways: what is flushed may be polled first. It
// then ends when the event is there, and with the status that the event gives.

// EventLimit bounds the wait for the event, which takes microseconds, while this process runs. After it the EP
// fails with ErrConnReset.
const EventLimit = time.Second

// flushedEP is an EP whose event is still on its way.
type flushedEP struct {
	e    *EP
	upTo uint64 // the last work request that was flushed; what is between CI and it has not ended
	wait timelimit.Limit
}

// awaitCause notes that the device has flushed what was posted on an EP that is ready, up to a
// work request.
func (it *Iface) awaitCause(e *EP, upTo uint64) {
	for i := range it.flushed {
		if f := &it.flushed[i]; f.e == e {
			f.upTo = max(f.upTo, upTo)
			return
		}
	}
	it.flushed = append(it.flushed, flushedEP{e, upTo, timelimit.New(EventLimit)})
	it.raise(attnBacklog)
}

// heldBack reports that work requests of an EP were flushed and have not ended.
func (it *Iface) heldBack(e *EP) bool {
	return slices.ContainsFunc(it.flushed, func(f flushedEP) bool { return f.e == e && f.upTo > e.CI })
}

// endFlushed ends what was flushed on EPs that are not ready any more: the event has come, or
// they have failed for another reason, or are closed. Those that have waited too long fail here.
// Completions run.
func (it *Iface) endFlushed() {
	for i := 0; i < len(it.flushed); {
		if f := &it.flushed[i]; f.e.state == stateReady && !f.wait.Over() {
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
		it.raise(attnBacklog)
	}
}
