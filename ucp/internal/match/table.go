package match

import "iter"

// Table holds receives and unexpected messages; R and M are what their owners are, as a
// rule pointers. Init makes it ready. One goroutine at a time uses it, and nothing blocks.
//
// The caller tries to match before it adds: a message that arrives goes to Arrive, and if that
// finds nothing to Keep; a receive to Take, and if that finds nothing to Expect.
type Table[R, M any] struct {
	receives receives[R]
	messages messages[M]
}

// Init makes an empty table ready. It is called once, before all else.
func (t *Table[R, M]) Init() {
	t.receives.init()
	t.messages.init()
}

// Expect posts a receive, which stays the caller's record and is in the table until Arrive
// returns it or Cancel takes it out.
func (t *Table[R, M]) Expect(r *Recv[R]) { t.receives.add(r) }

// Arrive takes out the earliest receive that a message with that tag fits; nil: none.
func (t *Table[R, M]) Arrive(tag uint64) *Recv[R] {
	if t.receives.order.head == nil {
		return nil
	}
	return t.receives.take(tag)
}

// First is the earliest of the posted receives, of which there are some. It stays in the table.
// If it is [Recv.Ready] for a message, Arrive would return it.
func (t *Table[R, M]) First() *Recv[R] { return t.receives.order.head.entry }

// TakeFirst takes out r, which First has returned and which is ready.
func (t *Table[R, M]) TakeFirst(r *Recv[R]) { // as queue.shift, which a mark of the call would cost
	q, next := &t.receives.order, r.order.next
	if next != nil {
		next.prev = r.order.prev
	}
	q.head, r.order.next, r.order.prev = next, nil, nil
}

// Find is the earliest receive that a message with that tag fits; nil: none. It stays in the table.
func (t *Table[R, M]) Find(tag uint64) *Recv[R] { return t.receives.find(tag) }

// After is the earliest receive whose number is above seq; nil: none. It stays in the table. It takes
// few steps if that is the first or one of the last.
func (t *Table[R, M]) After(seq uint64) *Recv[R] {
	q := &t.receives.order
	l := q.head
	if l != nil && l.key <= seq {
		l = q.after(seq)
	}
	if l == nil {
		return nil
	}
	return l.entry
}

// Pending reports that r is in the table under the number that it had when it was posted.
func (t *Table[R, M]) Pending(r *Recv[R], seq uint64) bool {
	return r.order.prev != nil && r.order.key == seq
}

// Cancel takes a receive out and reports true, or reports false if it is not in the table. The
// receive is of this table or of none.
func (t *Table[R, M]) Cancel(r *Recv[R]) bool {
	if r.order.prev == nil {
		return false
	}
	t.receives.remove(r)
	return true
}

// Keep adds an unexpected message, which stays the caller's record and is in the table until
// Take returns it or Remove takes it out.
func (t *Table[R, M]) Keep(m *Msg[M]) { t.messages.add(m) }

// Take takes out the earliest message that fits a receive of that tag and mask; nil: none.
func (t *Table[R, M]) Take(tag, mask uint64) *Msg[M] {
	if t.messages.count == 0 {
		return nil
	}
	return t.messages.take(tag, mask)
}

// Peek is Take, but leaves the message in the table. Remove takes it out later.
func (t *Table[R, M]) Peek(tag, mask uint64) *Msg[M] { return t.messages.find(tag, mask) }

// Remove takes a message out and reports true, or reports false if it is not in the table. The
// message is of this table or of none.
func (t *Table[R, M]) Remove(m *Msg[M]) bool {
	if m.order.prev == nil {
		return false
	}
	t.messages.remove(m)
	return true
}

// Expects reports that there are receives in the table.
func (t *Table[R, M]) Expects() bool { return t.receives.order.head != nil }

// Unexpected is the number of messages in the table.
func (t *Table[R, M]) Unexpected() int { return t.messages.count }

// Receives yields the receives in the order in which they were posted. The loop may use the
// table, also take out the receive that it has; what it posts is not yielded, and what it
// takes out before its turn neither.
func (t *Table[R, M]) Receives() iter.Seq[*Recv[R]] { return t.receives.order.all }

// Messages yields the messages in the order in which they came, with the same rules.
func (t *Table[R, M]) Messages() iter.Seq[*Msg[M]] { return t.messages.order.all }

// Steps counts, from the beginning, the entries that were looked at beyond the first few of a
// search, put into an index or moved in one. It grows by a small constant for each entry and
// search; if it grows faster, more masks are in use than have an index.
func (t *Table[R, M]) Steps() uint64 {
	n := t.receives.steps + t.messages.steps
	for i := range t.receives.indexes {
		n += t.receives.indexes[i].steps
	}
	for i := range t.messages.indexes {
		n += t.messages.indexes[i].steps
	}
	return n
}
