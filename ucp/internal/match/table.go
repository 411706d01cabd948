package match

import "iter"

// Table contains receives and unexpected messages. R and M are the types of their owners, usually
// pointers. Init makes it ready. One goroutine at a time uses it, and no method blocks.
//
// The caller matches before it adds: for an arriving message it calls Arrive and, if that
// finds nothing, Keep; for a receive Take and, if that finds nothing, Expect.
type Table[R, M any] struct {
	receives receives[R]
	messages messages[M]
}

// Init initializes an empty table. The caller calls it once, before all other methods.
func (t *Table[R, M]) Init() {
	t.receives.init()
	t.messages.init()
}

// Expect posts a receive. It remains the caller's record, and is in the table until Arrive
// returns it or Cancel removes it.
func (t *Table[R, M]) Expect(r *Recv[R]) { t.receives.add(r) }

// Arrive removes and returns the earliest receive that a message with that tag matches; nil: none.
func (t *Table[R, M]) Arrive(tag uint64) *Recv[R] {
	if t.receives.order.head == nil {
		return nil
	}
	return t.receives.take(tag)
}

// First returns the earliest posted receive, and does not remove it. There must be receives.
// If it is [Recv.Ready] for a message, Arrive would return it.
func (t *Table[R, M]) First() *Recv[R] { return t.receives.order.head.entry }

// TakeFirst removes r, which First returned and which is ready.
func (t *Table[R, M]) TakeFirst(r *Recv[R]) { // as queue.shift: an inlined call would add an instruction that marks it
	q, next := &t.receives.order, r.order.next
	if next != nil {
		next.prev = r.order.prev
	}
	q.head, r.order.next, r.order.prev = next, nil, nil
}

// Find is Arrive, but leaves the receive in the table.
func (t *Table[R, M]) Find(tag uint64) *Recv[R] { return t.receives.find(tag) }

// After returns the earliest receive whose number is above seq, and does not remove it; nil: none. It takes
// few steps if that is the first or one of the last receives.
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

// Pending reports whether r is still in the table since it was posted under number seq.
func (t *Table[R, M]) Pending(r *Recv[R], seq uint64) bool {
	return r.order.prev != nil && r.order.key == seq
}

// Cancel removes a receive and returns true, or returns false if it is not in the table. The
// receive must be of this table or of none.
func (t *Table[R, M]) Cancel(r *Recv[R]) bool {
	if r.order.prev == nil {
		return false
	}
	t.receives.remove(r)
	return true
}

// Keep adds an unexpected message. It remains the caller's record, and is in the table until
// Take returns it or Remove removes it.
func (t *Table[R, M]) Keep(m *Msg[M]) { t.messages.add(m) }

// Take removes and returns the earliest message that matches a receive of that tag and mask; nil: none.
func (t *Table[R, M]) Take(tag, mask uint64) *Msg[M] {
	if t.messages.count == 0 {
		return nil
	}
	return t.messages.take(tag, mask)
}

// Peek is Take, but leaves the message in the table. Remove removes it later.
func (t *Table[R, M]) Peek(tag, mask uint64) *Msg[M] { return t.messages.find(tag, mask) }

// Remove removes a message and returns true, or returns false if it is not in the table. The
// message must be of this table or of none.
func (t *Table[R, M]) Remove(m *Msg[M]) bool {
	if m.order.prev == nil {
		return false
	}
	t.messages.remove(m)
	return true
}

// Expects reports whether there are receives in the table.
func (t *Table[R, M]) Expects() bool { return t.receives.order.head != nil }

// Unexpected returns the number of messages in the table.
func (t *Table[R, M]) Unexpected() int { return t.messages.count }

// Receives yields the receives in the order in which they were posted. The loop may use the
// table, and may remove its own receive. It does not see receives that it posts, nor those that it
// removes before their turn.
func (t *Table[R, M]) Receives() iter.Seq[*Recv[R]] { return t.receives.order.all }

// Messages yields the messages in the order in which they arrived, with the same rules.
func (t *Table[R, M]) Messages() iter.Seq[*Msg[M]] { return t.messages.order.all }

// Steps counts the entries that searches compared beyond the first few, and those
// added to an index or moved in one. It grows by a small constant for each entry and
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
