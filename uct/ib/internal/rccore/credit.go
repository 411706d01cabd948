package rccore

import (
	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/rcwire"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// addCredits adds credits that the peer returned. It returns false if the peer returned more than it
// received messages.
func (e *EP) addCredits(n uint32) bool {
	if uint32(e.peerGrant-e.Credits) < n {
		return false
	}
	e.Credits += int32(n)
	return true
}

// noCredit returns ErrNoResource, for a message on an EP in state ready that has no credit. The
// process of the peer returns credits. Between the death of that process and the destruction of its
// QP, the device of the peer still acknowledges messages. So a sender that has used all credits may
// have no work request in flight that could time out. If e waits for no completion and has posted
// nothing for Config.Timeout, noCredit posts an RDMA write of 0 bytes, which fails if the QP does
// not exist any more.
//
//go:noinline
func (e *EP) noCredit() error {
	if e.Sig > e.CI {
		return uct.ErrNoResource
	}
	now := timelimit.Now()
	if e.stalledPI != e.PI {
		e.stalledPI, e.probeAt = e.PI, now+e.it.cfg.Timeout
	}
	if now < e.probeAt {
		return uct.ErrNoResource
	}
	if err := e.postNop(); err != nil {
		return err
	}
	return uct.ErrNoResource
}

// countReceived counts a received message. When the credits that are due reach half of the window, the
// EP is added to the list of EPs that return credits by a separate message, unless an active
// message carries them before the end of this Progress.
func (e *EP) countReceived() {
	e.creditsDue++
	e.listForCredits()
}

// listForCredits adds the EP to it.creditReturners if the credits that are due reach half of the window.
func (e *EP) listForCredits() {
	if 2*e.creditsDue >= e.window && !e.listedForCredits && e.state == stateReady {
		e.listedForCredits = true
		e.next, e.it.creditReturners = e.it.creditReturners, e
		e.it.raise(attnDeferred)
	}
}

// returnCredits returns the credits of the EPs in it.creditReturners, while the CQ has slots. EPs that cannot
// post remain in the list.
func (it *Iface) returnCredits() {
	var unsent *EP
	for it.creditReturners != nil && it.HasResources() {
		e := it.creditReturners
		it.creditReturners = e.next
		e.next, e.listedForCredits = nil, false
		if 2*e.creditsDue >= e.window && e.state == stateReady && !e.sendCredits() && e.state == stateReady {
			e.listedForCredits = true
			e.next, unsent = unsent, e
		}
	}
	for unsent != nil {
		e := unsent
		unsent = e.next
		e.next, it.creditReturners = it.creditReturners, e
	}
}

// sendCredits sends the credits that are due, before pending requests. It returns false if the EP
// has no slot or the post fails.
func (e *EP) sendCredits() bool {
	if !e.reserveSlot() {
		return false
	}
	wr := e.it.resetOtherWR(verbs.OpSendWithImm, 0)
	wr.Flags = e.signal()
	wr.Imm = uint32(rcwire.Credits(e.creditsDue))
	e.creditsDue = 0
	return e.post(&e.it.otherWR) == nil
}

// unlistForCredits removes an EP from it.creditReturners.
func (it *Iface) unlistForCredits(e *EP) {
	if !e.listedForCredits {
		return
	}
	for p := &it.creditReturners; *p != nil; p = &(*p).next {
		if *p == e {
			*p = e.next
			e.next, e.listedForCredits = nil, false
			return
		}
	}
}
