package rccore

import (
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

// owe counts a message taken in. When half of the window is owed, the EP is due
// for a message that returns credits, unless an active message takes them along
// before the end of this Progress.
func (e *EP) owe() {
	e.debt++
	if 2*e.debt >= e.window && !e.owes {
		e.owes = true
		e.owingNext, e.it.owing = e.it.owing, e
		e.it.raise(attnBacklog)
	}
}

// payDebts returns credits for the EPs that are due. Those that cannot post stay.
func (it *Iface) payDebts() {
	due := it.owing
	it.owing = nil
	for e := due; e != nil; {
		next := e.owingNext
		e.owingNext, e.owes = nil, false
		if 2*e.debt >= e.window && e.state == stateReady && !e.pay() {
			e.owes = true
			e.owingNext, it.owing = it.owing, e
		}
		e = next
	}
}

// pay sends the credits that are owed, past pending requests; false without room.
func (e *EP) pay() bool {
	if !e.slot() {
		return false
	}
	wr := e.it.fullWR(verbs.OpSendWithImm, 0)
	wr.Flags = e.signal()
	wr.Imm = uint32(rcwire.Credits(e.debt))
	e.debt = 0
	return e.post(&e.it.full) == nil
}

// dropOwing takes a closed EP off the list.
func (it *Iface) dropOwing(e *EP) {
	for p := &it.owing; *p != nil; p = &(*p).owingNext {
		if *p == e {
			*p = e.owingNext
			e.owingNext, e.owes = nil, false
			return
		}
	}
}
