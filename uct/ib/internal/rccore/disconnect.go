package rccore

import (
	"time"

	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/internal/rcwire"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// A closed EP tells its peer, behind everything that it has posted, by a message that
// the peer's device acknowledges without the peer's help. Only then does the QP go: a
// peer that posts to a QP that is gone learns of it by a timeout.

// disconnectLimit bounds how long a closed EP waits for its peer's device: a thousand
// times what one takes that is there, while this process runs. After it, what is in flight is canceled.
const disconnectLimit = 100 * time.Millisecond

// disconnect tells the peer that the EP is closed, now or when there is room.
func (e *EP) disconnect() error {
	e.noticePending = true
	e.leaveSoon()
	return e.tellPeer()
}

// tellPeer sends the message if there is room for it. It is called again when there may be some.
func (e *EP) tellPeer() error {
	if !e.slot() {
		e.it.unsettled.add(e)
		return nil
	}
	e.noticePending = false
	if !e.sendDisconnect() {
		return e.stop()
	}
	e.leaveSoon()
	return nil
}

// sendDisconnect reports whether the message could be posted.
func (e *EP) sendDisconnect() bool {
	if !e.slot() {
		return false
	}
	wr := e.it.fullWR(verbs.OpSendWithImm, verbs.SendSignaled)
	wr.Imm = uint32(rcwire.Disconnect())
	e.Sig = e.PI + 1
	return e.post(&e.it.full) == nil
}

// leaveSoon bounds what a closed EP waits for.
func (e *EP) leaveSoon() {
	e.leaving = timelimit.New(e.it.leaveLimit)
	e.it.leaving = true
	e.it.raise(attnBacklog)
}

// lookAtLeaving has closed EPs look at their limits, Looks times in the shortest of them at most: each look costs
// a visit of all closed EPs.
func (it *Iface) lookAtLeaving() {
	it.raise(attnBacklog)
	now := timelimit.Now()
	if now-it.lastLook < it.leaveLimit/timelimit.Looks {
		return
	}
	it.lastLook, it.leaving = now, false
	for i := it.closing.Len() - 1; i >= 0; i-- {
		if i < it.closing.Len() {
			it.closing.All()[i].releaseWhenIdle()
		}
	}
}

// stop ends what is in flight of an EP that takes nothing more. On a queue that others use
// that is left to the device, until the iface is closed and leaveLimit is over.
func (e *EP) stop() error {
	if !e.link.Shared() {
		return e.link.ToERR()
	}
	if e.state == stateClosed {
		e.leaveSoon()
	}
	return nil
}

// leaveInTime moves the QP of a closed EP to ERR when its peer has taken too long to
// take notice. Until then it has finish look again.
func (e *EP) leaveInTime() {
	switch {
	case !e.leaving.Waits():
	case !e.leaving.Over(),
		e.it.closed && e.noticePending && e.PI == e.CI: // it waits for other EPs, which leave in time
		e.it.leaving = true
		e.it.raise(attnBacklog)
	case e.link.Shared() && !e.it.closed: // it would take others along, for a peer that may be slow
		e.leaving, e.noticePending = timelimit.Limit{}, false
	default:
		e.cutOff()
	}
}

// cutOff ends what a closed EP has in flight.
func (e *EP) cutOff() {
	e.leaving, e.noticePending = timelimit.Limit{}, false
	_ = e.link.ToERR() // a device that refuses flushes nothing either; the iface's Close is bounded
}

// peerClosed handles the peer's message that it has closed its EP.
func (it *Iface) peerClosed(e *EP) {
	if e.state != stateClosed {
		it.fail(e, ucs.StatusPeerClosed, nil)
		return
	}
	if !e.link.Shared() {
		e.cutOff() // both leave: neither waits for the other
	}
	e.releaseWhenIdle()
}

// patience is how long the iface may be left without a Progress; 0 if nothing waits for
// a time.
func (it *Iface) patience() time.Duration {
	const often = disconnectLimit / timelimit.Looks
	if len(it.flushed) > 0 || it.leaving && it.closing.Len() > 0 {
		return often
	}
	return 0
}
