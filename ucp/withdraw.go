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
	return r != nil && r.flags&(reqAwaited|reqLed|reqDone|reqFree) == reqAwaited && r.stage.announces
}

// withdraw asks the peer for the message, once.
func (r *Request) withdraw() {
	if e := r.ep; r.flags&reqCanceling == 0 && e.state <= epClosing {
		r.flags |= reqCanceling
		e.control(withdrawControl, r.remote, 0)
	}
}

// handleWithdraw gives a message back to its sender that nobody reads. There is nothing to do if
// somebody does, or has.
func (w *Worker) handleWithdraw(c *wire.Control, e *EP) bool {
	if e.msgs == nil || c.ID == 0 {
		return false
	}
	for a := e.msgs.rndv; a != nil; a = a.next {
		if a.id == c.ID {
			e.msgs.giveUp(a)
			break
		}
	}
	return true
}

// giveUp has a message be gone: a tagged one that nobody has taken leaves the table, others stay
// with who holds them, without their data.
func (m *messages) giveUp(a *announced) {
	for u := m.kept.first; u != nil; u = u.next {
		if u.rndv == a {
			u.lose(ucs.StatusCanceled)
			return
		}
	}
	a.refuse(ucs.StatusCanceled)
	a.id = 0
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
	if a.next != nil {
		a.next.prev = a.prev
	}
	if a.prev != nil {
		a.prev.next = a.next
	} else {
		a.msgs.rndv = a.next
	}
}
