package ucp

import "github.com/gucx/gucx/ucs"

// What peers leave behind that have gone: their messages that have come whole and that
// nobody has received yet. A peer that comes and goes again and again must not fill the
// memory with them, so they are bounded as what connected peers send is: beyond the budget
// those of the peer that has gone first are dropped.

// leave is called when the EP of the messages goes.
func (m *messages) leave() {
	w := m.e.w
	m.closed = true
	w.leftBytes += m.held
	if m.kept.first == nil {
		return
	}
	m.prev = w.leftLast
	if m.prev == nil {
		w.leftFirst = m
	} else {
		m.prev.next = m
	}
	w.leftLast = m
	for w.leftBytes > w.ctx.cfg.eagerBudget() && w.leftFirst != nil {
		u := w.leftFirst.kept.first
		w.stats.droppedMessages.Inc()
		w.tags.Remove(&u.node)
		u.taken().done(ucs.StatusCanceled)
	}
}

// leftFewer is called when a message of a peer that has gone is taken.
func (m *messages) leftFewer() {
	if m.kept.first != nil {
		return
	}
	w := m.e.w
	if m.prev == nil {
		w.leftFirst = m.next
	} else {
		m.prev.next = m.next
	}
	if m.next == nil {
		w.leftLast = m.prev
	} else {
		m.next.prev = m.prev
	}
	m.next, m.prev = nil, nil
}
