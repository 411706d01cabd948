package ucp

import (
	"fmt"

	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
)

// A sender can withdraw a rendezvous message: it requests the receiver to drop the message. As for every RTS, its buffer is in
// use until the receiver has replied. If a receive has already matched, the transfer continues, and the reply reports
// success.

// errWithdrawn is the error of a receive whose message was withdrawn.
var errWithdrawn = fmt.Errorf("%w: its sender has withdrawn it", ucs.ErrCanceled)

// waitsForReceive reports whether the request is a rendezvous message that, as far as the sender knows, no receive has
// matched.
func (r *Request) waitsForReceive() bool {
	return r != nil && r.flags&(reqPlace|reqDone) == placeAwaited && r.stage.announces
}

// withDropRequest returns a copy of c for messages that may use rendezvous: Cancel requests the peer to drop such a message.
func withDropRequest(c class) class {
	c.requestDrop = (*Request).requestDrop
	return c
}

// requestDrop requests the peer to drop a rendezvous message. It returns false if no RTS was sent.
func (r *Request) requestDrop() bool {
	if !r.waitsForReceive() {
		return false
	}
	r.withdraw()
	return true
}

// withdraw requests the peer to drop the message, once.
func (r *Request) withdraw() {
	if e := r.ep; !r.msg.recalls && e.state <= epClosing {
		r.msg.recalls = true
		e.control(withdrawControl, r.remote, 0)
	}
}

// handleWithdraw drops a message that no receive has matched, and replies to its sender. Otherwise there is
// nothing to do.
func (w *Worker) handleWithdraw(c *wire.Control, e *EP) bool {
	if e.msgs == nil || c.ID == 0 {
		return false
	}
	if a := e.msgs.announcedAs(c.ID); a != nil {
		e.msgs.dropData(a, ucs.StatusCanceled)
	}
	return true
}

// announcedAs returns the announced message with the sender's id; nil if there is
// none. It first adds the messages that arrived since the last call to the index.
func (m *messages) announcedAs(id uint64) *announced {
	for a := m.rndv.first; a != nil && !a.named; a = a.next {
		if m.rndv.byName == nil {
			m.rndv.byName = map[uint64]*announced{}
		}
		m.rndv.byName[a.id], a.named = a, true // a peer that follows the protocol sends no id twice; otherwise one of them is found
		m.rndv.steps++
	}
	return m.rndv.byName[id]
}

// unname removes a message from the index of ids.
func (m *messages) unname(a *announced) {
	if m.rndv.byName[a.id] == a {
		delete(m.rndv.byName, a.id)
	}
	if len(m.rndv.byName) == 0 {
		m.rndv.byName = nil
	}
}

// dropData drops the data of a message and replies to its sender with st. An unexpected tagged message is removed from the
// table; other messages remain with their owner, without data.
func (m *messages) dropData(a *announced, st ucs.Status) {
	if k := a.owner; k != nil && k.withdrawn() {
		return
	}
	a.refuse(st)
	m.unname(a)
	a.id = 0
}

// dropAnnounced drops the rendezvous messages of a closing loop-back that no receive has matched.
func (e *EP) dropAnnounced() {
	m := e.msgs
	if m == nil {
		return
	}
	for a := m.rndv.first; a != nil; {
		next := a.next
		m.dropData(a, ucs.StatusPeerClosed)
		a = next
	}
}

// enlist adds a to rndvMessages.first of its connection.
func (a *announced) enlist() {
	m := a.msgs
	if a.next = m.rndv.first; a.next != nil {
		a.next.prev = a
	}
	m.rndv.first = a
}

// delist removes a from that list.
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
		a.msgs.rndv.first = a.next
	}
}
