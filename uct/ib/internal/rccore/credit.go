package rccore

import (
	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/rcwire"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// credited adds credits that the peer returned. It returns false if the peer returned more than it
// received messages.
func (e *EP) credited(n uint32) bool {
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

// creditDue counts a received message. When the credits that are due reach half of the window, the
// EP is added to the list of EPs that return credits by a separate message, unless an active
// message carries them before the end of this Progress.
func (e *EP) creditDue() {
	e.creditsDue++
	e.listCredits()
}

// listCredits adds the EP to it.due if the credits that are due reach half of the window.
func (e *EP) listCredits() {
	if 2*e.creditsDue >= e.window && !e.dueListed && e.state == stateReady {
		e.dueListed = true
		e.next, e.it.due = e.it.due, e
		e.it.raise(attnBacklog)
	}
}

// returnCredits returns the credits of the EPs in it.due, while the CQ has slots. EPs that cannot
// post remain in the list.
func (it *Iface) returnCredits() {
	var stay *EP
	for it.due != nil && it.HasResources() {
		e := it.due
		it.due = e.next
		e.next, e.dueListed = nil, false
		if 2*e.creditsDue >= e.window && e.state == stateReady && !e.sendCredits() && e.state == stateReady {
			e.dueListed = true
			e.next, stay = stay, e
		}
	}
	for stay != nil {
		e := stay
		stay = e.next
		e.next, it.due = it.due, e
	}
}

// sendCredits sends the credits that are due, before pending requests. It returns false if the EP
// has no slot or the post fails.
func (e *EP) sendCredits() bool {
	if !e.slot() {
		return false
	}
	wr := e.it.fullWR(verbs.OpSendWithImm, 0)
	wr.Flags = e.signal()
	wr.Imm = uint32(rcwire.Credits(e.creditsDue))
	e.creditsDue = 0
	return e.post(&e.it.full) == nil
}

// unlistCredits removes an EP from it.due.
func (it *Iface) unlistCredits(e *EP) {
	if !e.dueListed {
		return
	}
	for p := &it.due; *p != nil; p = &(*p).next {
		if *p == e {
			*p = e.next
			e.next, e.dueListed = nil, false
			return
		}
	}
}
