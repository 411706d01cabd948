package tuple

import (
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Request is a message that is sent through a queue. The caller must not change its buffer until End or
// Again or Requeue has been called; one of them is called, once.
type Request interface {
	// Pieces returns the message as the transport sends it, of at most max bytes. It returns
	// false if the message cannot go through a queue. The pieces belong to the owner, who must not change them.
	Pieces(max int) (iov []uct.IOV, ok bool)
	// GivenUp reports whether the message need not be sent any more.
	GivenUp() bool
	// End completes the request. The transport no longer uses its buffer.
	End(st ucs.Status)
	// Again sends the message the usual way, behind the control messages of the connection and before all messages that wait.
	// Requeue makes it wait the usual way with that place, among messages that wait. Target.Requeued follows. The
	// transport no longer uses the buffer.
	Again()
	Requeue(at SendPlace)
}

// Send is the state of a Request in a queue, usually a part of the owner's record. Init makes
// it ready once. Out.Send takes it; End, Again or Requeue of the owner returns it.
type Send struct {
	uct.Completion
	owner Request
	t     *Out
	place SendPlace
	iov   []uct.IOV
	busy  bool // posted to the connection
	next  *Send
}

// Init initializes the record of a request.
func (m *Send) Init(owner Request) {
	m.owner = owner
	m.Func = func(*uct.Completion) { m.done() }
}

// done is called when the transport has completed a message.
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
	case t.state == outOpen: // the peer has stopped the queue
		t.close(nil)
	}
}

// end completes the request of a message that the transport no longer uses.
func (m *Send) end(st ucs.Status) {
	m.clear()
	m.owner.End(st)
}

// again sends a message of the queue the usual way.
func (m *Send) again() {
	m.t.s.stats.resent.Inc()
	m.clear()
	m.owner.Again()
}

// requeue makes a message of the queue wait the usual way.
func (m *Send) requeue() {
	m.t.s.stats.resent.Inc()
	m.clear()
	m.owner.Requeue(m.place)
}

// clear resets the record.
func (m *Send) clear() { m.t, m.iov, m.next = nil, nil, nil }
