package ucp

import (
	"fmt"

	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
)

// A message that was announced is withdrawn by its sender, which wants the memory back: it asks the
// receiver not to begin reading, and has the memory when that has answered, as it does to every
// announcement. A receiver that has begun goes on; its answer says so.

// errWithdrawn is why a message cannot be had that its sender has withdrawn.
var errWithdrawn = fmt.Errorf("%w: its sender has withdrawn it", ucs.ErrCanceled)

// waitsForReceive reports that the request is a message that was announced, and that as far as is
// known here no receive has begun.
func (r *Request) waitsForReceive() bool {
	return r != nil && r.flags&(reqPlace|reqDone) == placeAwaited && r.stage.announces
}

// withAskBack is the class of messages that may be announced: canceling such a message asks the peer for it.
func withAskBack(c class) class {
	c.askBack = (*Request).askBack
	return c
}

// askBack asks the peer for a message that was announced. It reports false if the peer has no announcement.
func (r *Request) askBack() bool {
	if !r.waitsForReceive() {
		return false
	}
	r.withdraw()
	return true
}

// withdraw asks the peer for the message, once.
func (r *Request) withdraw() {
	if e := r.ep; !r.msg.recalls && e.state <= epClosing {
		r.msg.recalls = true
		e.control(withdrawControl, r.remote, 0)
	}
}

// handleWithdraw gives a message back to its sender that nobody reads. There is nothing to do if
// somebody does, or has.
func (w *Worker) handleWithdraw(c *wire.Control, e *EP) bool {
	if e.msgs == nil || c.ID == 0 {
		return false
	}
	if a := e.msgs.announcedAs(c.ID); a != nil {
		e.msgs.giveUp(a, ucs.StatusCanceled)
	}
	return true
}

// announcedAs is the message that is kept under the name that its sender has for it; nil if there is
// none. Messages are entered by name when one is withdrawn: those that came since the last time.
func (m *messages) announcedAs(id uint64) *announced {
	for a := m.rndv; a != nil && !a.named; a = a.next {
		if m.byName == nil {
			m.byName = map[uint64]*announced{}
		}
		m.byName[a.id], a.named = a, true // of two of a name, which no peer sends that keeps the rules, one is found
		m.steps++
	}
	return m.byName[id]
}

// unname has a message not be found by name any more.
func (m *messages) unname(a *announced) {
	if m.byName[a.id] == a {
		delete(m.byName, a.id)
	}
	if len(m.byName) == 0 {
		m.byName = nil
	}
}

// giveUp has a message be gone: a tagged one that nobody has taken leaves the table, others stay
// with who holds them, without their data. Their senders get st.
func (m *messages) giveUp(a *announced, st ucs.Status) {
	if k := a.keeper; k != nil && k.withdrawn() {
		return
	}
	a.refuse(st)
	m.unname(a)
	a.id = 0
}

// dropAnnounced drops the announced messages that nobody receives from a loop-back that closes.
func (e *EP) dropAnnounced() {
	m := e.msgs
	if m == nil {
		return
	}
	for a := m.rndv; a != nil; {
		next := a.next
		m.giveUp(a, ucs.StatusPeerClosed)
		a = next
	}
}

// enlist enters a message that is kept.
func (a *announced) enlist() {
	m := a.msgs
	if a.next = m.rndv; a.next != nil {
		a.next.prev = a
	}
	m.rndv = a
}

// delist takes it out.
func (a *announced) delist() {
	if a.named {
		a.msgs.unname(a)
	}
	if a.next != nil {
		a.next.prev = a.prev
	}
	if a.prev != nil {
		a.prev.next = a.next
	} else {
		a.msgs.rndv = a.next
	}
}
