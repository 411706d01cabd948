package rccore

import (
	"errors"
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/buffer"
	"github.com/gucx/gucx/uct/ib/internal/wake"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Progress implements uct.Iface. Two cases use the fast path: no completion, and one successful
// send.
func (it *Iface) Progress() int {
	if it.Attn.Load() != 0 {
		return it.progress(it.poller.Poll(it.wc))
	}
	if it.watch.Idle() {
		return 0
	}
	n := it.poller.Poll(it.wc)
	if n == 1 {
		wc := &it.wc[0]
		e := it.recent[uint8(wc.QPN)]
		if wc.QPN == e.QPN && wc.Status == verbs.WCSuccess && wc.ID < buffer.RecvID {
			e.CI = wc.ID
			if wc.ID >= e.NextOp {
				e.Retire()
			}
			return 1
		}
	}
	return it.progress(n)
}

// Watch implements uct.Watcher. One queue has all completions, of sends and receives.
func (it *Iface) Watch() *ucs.Watch { return it.watch }

// neverIdle is the watch of a queue without one: with it, Progress always polls.
func neverIdle() *ucs.Watch {
	word := new(uint32)
	return &ucs.Watch{Word: word, Quiet: 1, Attention: word}
}

// progress handles n completions and the bits of Attn.
func (it *Iface) progress(n int) int {
	for i := range it.wc[:max(n, 0)] {
		wc := &it.wc[i]
		e := it.recent[uint8(wc.QPN)]
		if wc.Status != verbs.WCSuccess || wc.ID >= buffer.RecvID {
			it.HandleOther(wc)
			continue
		}
		if wc.QPN != e.QPN {
			e = it.eps.find(wc.QPN)
			it.recent[uint8(wc.QPN)] = e
		}
		e.CI = wc.ID
		if wc.ID >= e.NextOp {
			e.Retire()
		}
	}
	return it.FinishProgress(n)
}

// FinishProgress must be called at the end of a Progress that has polled n completions. It handles the bits of
// Attn. n is negative after an error of the queue. It returns the number of handled events.
func (it *Iface) FinishProgress(n int) int {
	if n <= 0 {
		return it.progressRare(n)
	}
	if it.Attn.Load() != 0 {
		it.runDeferred()
	}
	return n
}

// HandleCompletion handles any completion, for a transport with its own Progress.
func (it *Iface) HandleCompletion(wc *verbs.WC) {
	if wc.Status != verbs.WCSuccess || wc.ID >= buffer.RecvID {
		it.HandleOther(wc)
		return
	}
	e := it.eps.find(wc.QPN)
	e.CI = wc.ID
	if wc.ID >= e.NextOp {
		e.Retire()
	}
}

// HandleOther handles a completion that is not a successful send. The opcode of a failed completion is
// invalid, so the range of the ID distinguishes receives.
func (it *Iface) HandleOther(wc *verbs.WC) {
	if wc.ID >= buffer.RecvID {
		it.handleReceive(wc)
		return
	}
	it.handleFailedSend(wc)
}

// handleFailedSend handles a failed or flushed work request.
func (it *Iface) handleFailedSend(wc *verbs.WC) {
	e := it.eps.find(wc.QPN)
	if e == &it.eps.vacant {
		return
	}
	if wc.ID > e.CI+1 && !it.hasFlushed(e) { // the unsignaled ones before it have succeeded
		e.CI = wc.ID - 1
		e.Retire()
	}
	if wc.Status == verbs.WCWRFlushErr && e.state == stateReady {
		it.awaitCause(e, wc.ID)
		return
	}
	st := ib.CompletionStatus(wc)
	it.fail(e, st, it.failureCause(e, st, wc.Status))
	e.CI = wc.ID
	e.retireInOrder(st)
}

// failureCause returns the cause of the failure of a work request of e with completion status st, for
// which known is the status of the operation. If the port is down, requests fail with one of two
// completion statuses: one for requests that were not sent, one for missing replies. In these cases
// it queries the port, unless known shows that the peer does not exist any more.
func (it *Iface) failureCause(e *EP, known ucs.Status, st verbs.WCStatus) error {
	err := st.Err()
	if known == ucs.StatusPeerClosed || known == ucs.StatusConnReset {
		return err
	}
	if e.state != stateFailed && (st == verbs.WCLocQPOpErr || st == verbs.WCRetryExcErr) {
		return it.port.FailureCause(err)
	}
	return err
}

// fail moves an EP to state failed: posts return an error from now on, and OnError is called once.
// Operations in flight complete when the device flushes them.
func (it *Iface) fail(e *EP, st ucs.Status, cause error) {
	if e.state == stateFailed || e.state == stateClosed {
		return
	}
	e.state, e.Room, e.cause = stateFailed, 0, st
	e.err = it.opError(fmt.Sprintf("qp %#x", e.QPN), ucs.EPFailed(ucs.Because(st, cause)))
	it.unlistForCredits(e)
	it.arb.Fail(&e.pending)
	if err := e.stop(); err != nil {
		e.err = ucs.Join(e.err, err)
	}
	e.releaseWhenIdle()
	it.raise(attnDeferred) // runDeferred must dispatch pending requests, which then see the failure
	if it.ext != nil {
		it.ext.HandleFailure(e.outer)
	}
	if it.onError != nil {
		it.onError(e.outer, e.err)
	}
}

// runDeferred does deferred work after all completions of a Progress are handled: it returns credits, releases
// EPs, and dispatches pending requests.
func (it *Iface) runDeferred() {
	if it.creditReturners != nil {
		it.returnCredits()
	}
	it.Attn.And(^uint32(attnDeferred | attnPending))
	it.slotsInUse = false
	it.completeFlushed()
	it.retryReleases()
	if it.disconnecting {
		it.checkDisconnectLimits()
	}
	if it.signalsDeferred {
		it.postSignals()
	}
	it.arb.Dispatch(it)
	if it.creditReturners != nil {
		it.raise(attnDeferred)
	}
	if it.arb.Len() != 0 {
		it.raise(attnPending)
	}
}

// deferSignals makes runDeferred call postSignals.
func (it *Iface) deferSignals() {
	it.signalsDeferred = true
	it.raise(attnDeferred)
}

// postSignals posts signaled work requests for EPs whose operations wait for a completion and for
// which the CQ had no slot, and for EPs with more consecutive unsignaled work requests than
// Moderation allows. EPs may fail and be closed.
func (it *Iface) postSignals() {
	it.signalsDeferred = false
	for i := it.open.Len() - 1; i >= 0; i-- {
		if i >= it.open.Len() {
			continue
		}
		if !it.HasResources() {
			it.deferSignals()
			return
		}
		e := it.open.All()[i]
		if e.opHead != nil || e.waiter.comp != nil {
			e.updateNextOp()
		}
		if e.state == stateReady && e.PI-max(e.Sig, e.CI) > it.Moderation && e.postNop() == uct.ErrNoResource {
			it.deferSignals()
		}
	}
}

// progressRare is the end of a Progress without completions: it handles an error of the CQ, events from
// other goroutines, and deferred work. It ignores attnPending, because no resource has become free.
func (it *Iface) progressRare(n int) int {
	if n < 0 {
		it.handleCQError()
		n = 0
	}
	attn := it.Attn.Load()
	if attn&wake.Raised != 0 {
		n += it.handleEvents()
	}
	if it.Attn.Load()&attnDeferred != 0 {
		it.runDeferred()
	}
	return n
}

// errFault is the cause of the failure if the device has moved a QP to ERR by itself.
var errFault = errors.New("the device reported a fault of the connection")

// handleEvents fails the EPs whose QPs the device has moved to ERR without a completion. If a work
// request has failed, the EP has the status of its completion.
func (it *Iface) handleEvents() (n int) {
	it.wake.Lower()
	it.asyncMu.Lock()
	it.events = append(it.events[:0], it.async...)
	it.async = it.async[:0]
	it.asyncMu.Unlock()
	for _, f := range it.events {
		if f.qp == nil {
			it.handleCQError()
			n++
			continue
		}
		if it.links != nil {
			n += it.handleLinkFault(&f)
			continue
		}
		e := it.eps.find(f.qp.Number())
		if e != &it.eps.vacant && e.state != stateClosed && e.link.(*QPLink).QP == f.qp { // otherwise f.qp was closed
			it.fail(e, f.status, errFault)
			n++
		}
	}
	return n
}

// handleLinkFault calls it.links for an event.
func (it *Iface) handleLinkFault(f *qpFault) int {
	if f.gone != (verbs.GID{}) {
		return it.links.HandleDeviceGone(f.gone)
	}
	return it.links.HandleFault(f.qp, f.status)
}
