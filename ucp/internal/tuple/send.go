package tuple

import (
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Request is a message that is sent through a queue. Its buffer stays as it is until End or
// Again has been called, which happens once.
type Request interface {
	// Pieces is the message as the transport takes it, of at most max bytes; it reports
	// false if it cannot go through a queue. The pieces are the owner's, and stay.
	Pieces(max int) (iov []uct.IOV, ok bool)
	// GivenUp reports that it need not be sent any more.
	GivenUp() bool
	// End ends it. The transport has nothing of it.
	End(st ucs.Status)
	// Again sends it the usual way. The transport has nothing of it.
	Again()
}

// Send is what a Request has for the queue, as a rule a part of the owner's record. Init makes
// it ready once; Out.Send takes it, and End or Again of the owner gives it back.
type Send struct {
	uct.Completion
	owner Request
	t     *Out
	place Place
	iov   []uct.IOV
	busy  bool // the connection has it
	next  *Send
}

// Init makes the record of a request ready.
func (m *Send) Init(owner Request) {
	m.owner = owner
	m.Func = func(*uct.Completion) { m.done() }
}

// done is called when the transport has let go of a message.
func (m *Send) done() {
	t := m.t
	m.busy = false
	t.busy--
	switch {
	case t.s.dead != ucs.StatusOK:
		m.end(t.s.dead)
	case m.Status == ucs.StatusOK:
		t.acked++
		t.pop().end(ucs.StatusOK)
		if t.unsent != nil {
			t.pump()
		}
	case t.state == outOpen: // the peer has left the queue
		t.close(nil)
	}
}

// end ends the request of a message of which the transport has nothing.
func (m *Send) end(st ucs.Status) {
	m.clear()
	m.owner.End(st)
}

// again sends a message the usual way that was to go through a queue.
func (m *Send) again() {
	m.t.s.stats.resent.Inc()
	m.clear()
	m.owner.Again()
}

// clear makes the record as new.
func (m *Send) clear() { m.t, m.iov, m.next = nil, nil, nil }
