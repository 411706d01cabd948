package ucp

import "github.com/gucx/gucx/ucs"

// A peer that has gone leaves the messages that have come whole and that the user has not received.
// A peer that comes and goes again and again must not fill the memory with them, so they are limited
// as the messages of connected peers are: beyond the budget, the messages of the peer that has gone
// first are dropped. What counts is the memory that the messages keep in use: their buffers, which may
// be twice as long as their data, and the EP that TagInfo.From names.

// departedCharge is charged for an EP that is kept only by its messages, in bytes: the EP, its messages
// record and the address of the peer take about 4 KiB.
const departedCharge = 4 << 10

// slack is how many bytes of the buffer of the message its charge does not count.
func (u *TagMessage) slack() int64 {
	if u.rndv != nil {
		return int64(cap(u.buf))
	}
	return int64(cap(u.buf) - u.n)
}

// leave is called when the EP of the messages goes.
func (m *messages) leave() {
	w := m.e.w
	m.closed = true
	m.unbind()
	m.joined = joinedWords{} // it would keep the endpoint of the transport
	w.leftBytes += m.held
	if m.kept.first == nil {
		return
	}
	w.leftBytes += departedCharge
	for u := m.kept.first; u != nil; u = u.next {
		w.leftBytes += u.slack()
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
func (m *messages) leftFewer(u *TagMessage) {
	w := m.e.w
	w.leftBytes -= u.slack()
	if m.kept.first != nil {
		return
	}
	w.leftBytes -= departedCharge
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
