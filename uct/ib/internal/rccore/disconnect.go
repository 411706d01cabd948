package rccore

import (
	"time"

	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/internal/rcwire"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// A closed EP sends its peer a disconnect message, after everything it has posted. The device of the
// peer acknowledges the message; the process of the peer need not run. The EP destroys its QP only after
// that: a peer that posted to a destroyed QP would only get a timeout.

// disconnectTimeout is the maximum time that a closed EP waits for the device of its peer, not
// counting time in which this process does not run. A reachable device takes a thousandth of it.
// After it, work requests in flight are canceled.
const disconnectTimeout = 100 * time.Millisecond

// disconnect sends the disconnect message, now or when the EP has a slot.
func (e *EP) disconnect() error {
	e.disconnectPending = true
	e.startDisconnectLimit()
	return e.trySendDisconnect()
}

// trySendDisconnect sends the disconnect message if the EP has a slot. If not, retryReleases calls it
// again.
func (e *EP) trySendDisconnect() error {
	if !e.reserveSlot() {
		e.it.releases.add(e)
		return nil
	}
	e.disconnectPending = false
	if !e.sendDisconnect() {
		return e.stop()
	}
	e.startDisconnectLimit()
	return nil
}

// sendDisconnect posts the disconnect message and reports success.
func (e *EP) sendDisconnect() bool {
	if !e.reserveSlot() {
		return false
	}
	wr := e.it.resetOtherWR(verbs.OpSendWithImm, verbs.SendSignaled)
	wr.Imm = uint32(rcwire.Disconnect())
	e.Sig = e.PI + 1
	return e.post(&e.it.otherWR) == nil
}

// startDisconnectLimit starts the time limit of a closed EP.
func (e *EP) startDisconnectLimit() {
	e.disconnectLimit = timelimit.New(e.it.disconnectTimeout)
	e.it.disconnecting = true
	e.it.raise(attnDeferred)
}

// checkDisconnectLimits checks the time limits of closed EPs, at most Looks times per limit: each check
// visits all closed EPs.
func (it *Iface) checkDisconnectLimits() {
	it.raise(attnDeferred)
	now := timelimit.Now()
	if now-it.lastDisconnectCheck < it.disconnectTimeout/timelimit.Looks {
		return
	}
	it.lastDisconnectCheck, it.disconnecting = now, false
	for i := it.closing.Len() - 1; i >= 0; i-- {
		if i < it.closing.Len() {
			it.closing.All()[i].releaseWhenIdle()
		}
	}
}

// stop cancels the work requests in flight of an EP that accepts no more operations. On a queue
// that other EPs share, it leaves them to the device until the iface is closed and disconnectTimeout has
// passed.
func (e *EP) stop() error {
	if !e.link.Shared() {
		return e.link.ToERR()
	}
	if e.state == stateClosed {
		e.startDisconnectLimit()
	}
	return nil
}

// checkDisconnectLimit moves the QP of a closed EP to ERR if its time limit is over. Before that, it makes
// runDeferred check again.
func (e *EP) checkDisconnectLimit() {
	switch {
	case !e.disconnectLimit.Waits():
	case !e.disconnectLimit.Over(),
		e.it.closed && e.disconnectPending && e.PI == e.CI: // e waits for slots of other EPs, which have time limits of their own
		e.it.disconnecting = true
		e.it.raise(attnDeferred)
	case e.link.Shared() && !e.it.closed: // ERR would fail other EPs, and the peer may only be slow
		e.disconnectLimit, e.disconnectPending = timelimit.Limit{}, false
	default:
		e.cancelInFlight()
	}
}

// cancelInFlight cancels the work requests in flight of a closed EP.
func (e *EP) cancelInFlight() {
	e.disconnectLimit, e.disconnectPending = timelimit.Limit{}, false
	_ = e.link.ToERR() // if the device refuses, it flushes nothing either; Close of the iface has a time limit
}

// handleDisconnect handles a disconnect message.
func (it *Iface) handleDisconnect(e *EP) {
	if e.state != stateClosed {
		it.fail(e, ucs.StatusPeerClosed, nil)
		return
	}
	if !e.link.Shared() {
		e.cancelInFlight() // both sides close, so neither waits for the other
	}
	e.releaseWhenIdle()
}

// progressInterval is the maximum time between two calls of Progress; 0 if no time limit runs.
func (it *Iface) progressInterval() time.Duration {
	const often = disconnectTimeout / timelimit.Looks
	if len(it.flushed) > 0 || it.disconnecting && it.closing.Len() > 0 {
		return often
	}
	return 0
}
