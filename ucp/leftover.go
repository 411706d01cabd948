package ucp

import "github.com/gucx/gucx/ucs"

// A peer that has gone leaves the messages that have come whole and that the user has not received.
// A peer that comes and goes again and again must not fill the memory with them, so they are limited
// as the messages of connected peers are: beyond the budget, the messages of the peer that has gone
// first are dropped. Of one peer worker, they are also within its share (Worker.peerShare): beyond it, its oldest
// are dropped. What counts is the memory that the messages keep in use: their buffers, which may
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

// leave is called when the EP of the messages has gone.
func (m *messages) leave() {
	w := m.e.w
	if m.kept.first == nil {
		return
	}
	kept := int64(departedCharge)
	for u := m.kept.first; u != nil; u = u.next {
		kept += u.slack()
	}
	w.addLeft(m, kept)
	m.prev = w.tag.leftLast
	if m.prev == nil {
		w.tag.leftFirst = m
	} else {
		m.prev.next = m
	}
	w.tag.leftLast = m
	w.trimLeft(m.e.peer.Addr.UUID())
	for w.messages.leftBytes > w.ctx.cfg.eagerBudget() && w.tag.leftFirst != nil {
		w.tag.leftFirst.dropFirst()
	}
}

// dropFirst drops the oldest of the messages.
func (m *messages) dropFirst() {
	u, w := m.kept.first, m.e.w
	w.stats.droppedMessages.Inc()
	w.tag.table.Remove(&u.node)
	u.taken().done(ucs.StatusCanceled)
}

// leftFewer is called when a message of a peer that has gone is taken.
func (m *messages) leftFewer(u *TagMessage) {
	w := m.e.w
	w.addLeft(m, -u.slack())
	if m.kept.first != nil {
		return
	}
	w.addLeft(m, -departedCharge)
	if m.prev == nil {
		w.tag.leftFirst = m.next
	} else {
		m.prev.next = m.next
	}
	if m.next == nil {
		w.tag.leftLast = m.prev
	} else {
		m.next.prev = m.prev
	}
	m.next, m.prev = nil, nil
}
