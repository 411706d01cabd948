package rccore

import (
	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/rcwire"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// credited takes in credits that the peer returned; false if they are more than
// it has taken from us.
func (e *EP) credited(n uint32) bool {
	if uint32(e.peerGrant-e.Credits) < n {
		return false
	}
	e.Credits += int32(n)
	return true
}

// noCredit returns what a message gets for which e, which is ready, has no credit: ErrNoResource. The process of the
// peer returns credits. Its device acknowledges messages also between the death of that process and the removal of
// its QP, so a sender that has used up its window may have nothing in flight that could time out. If e waits for no
// completion and has posted nothing for Config.Timeout, noCredit posts a write of no bytes, which fails if the QP is gone.
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

// creditDue counts a message taken in. When credits for half of the window are due, the
// EP is listed for a message that returns credits, unless an active message takes them along
// before the end of this Progress.
func (e *EP) creditDue() {
	e.creditsDue++
	e.listCredits()
}

// listCredits lists the EP if so many credits are due.
func (e *EP) listCredits() {
	if 2*e.creditsDue >= e.window && !e.dueListed && e.state == stateReady {
		e.dueListed = true
		e.next, e.it.due = e.it.due, e
		e.it.raise(attnBacklog)
	}
}

// returnCredits returns credits for the EPs that are listed, while the CQ has slots. Those that cannot post stay.
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

// sendCredits sends the credits that are due, past pending requests; false without room.
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

// unlistCredits takes a closed EP off the list.
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
