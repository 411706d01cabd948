package ucp

import "github.com/gucx/gucx/ucs"

// When a peer disconnects, the messages that have arrived completely and that the user has not received remain. Peers that
// connect and disconnect repeatedly must not exhaust memory. So these messages have limits. If all of them exceed the budget
// of the worker, the messages of the peer that disconnected first are dropped. If those of one peer worker exceed its share
// (Worker.peerShare), its oldest messages are dropped. The limits count the memory that the messages use: their buffers,
// which may be twice as long as the data, and the EP in TagInfo.From.

// departedCharge is the charge for an EP that only its messages keep alive, in bytes. The EP, its
// messages record and the address of the peer take about 4 KiB.
const departedCharge = 4 << 10

// slack returns the part of a message's buffer that its charge does not include, in bytes.
func (u *TagMessage) slack() int64 {
	if u.rndv != nil {
		return int64(cap(u.buf))
	}
	return int64(cap(u.buf) - u.n)
}

// leave is called when the EP of the messages is destroyed.
func (m *messages) leave() {
	w := m.e.w
	if m.tag.unexpected.first == nil {
		return
	}
	kept := int64(departedCharge)
	for u := m.tag.unexpected.first; u != nil; u = u.next {
		kept += u.slack()
	}
	w.addLeft(m, kept)
	m.tag.prev = w.tag.leftLast
	if m.tag.prev == nil {
		w.tag.leftFirst = m
	} else {
		m.tag.prev.tag.next = m
	}
	w.tag.leftLast = m
	w.trimLeft(m.e.peer.Addr.UUID())
	for w.messages.leftBytes > w.ctx.cfg.eagerBudget() && w.tag.leftFirst != nil {
		w.tag.leftFirst.dropFirst()
	}
}

// dropFirst drops the oldest message.
func (m *messages) dropFirst() {
	u, w := m.tag.unexpected.first, m.e.w
	w.stats.droppedMessages.Inc()
	w.tag.table.Remove(&u.node)
	u.unlink().done(ucs.StatusCanceled)
}

// leftFewer is called when an unexpected message of a departed peer was removed.
func (m *messages) leftFewer(u *TagMessage) {
	w := m.e.w
	w.addLeft(m, -u.slack())
	if m.tag.unexpected.first != nil {
		return
	}
	w.addLeft(m, -departedCharge)
	if m.tag.prev == nil {
		w.tag.leftFirst = m.tag.next
	} else {
		m.tag.prev.tag.next = m.tag.next
	}
	if m.tag.next == nil {
		w.tag.leftLast = m.tag.prev
	} else {
		m.tag.next.tag.prev = m.tag.prev
	}
	m.tag.next, m.tag.prev = nil, nil
}
