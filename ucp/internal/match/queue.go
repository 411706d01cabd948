package match

// link links an entry of type E in one queue.
type link[E any] struct {
	next  *link[E] // nil for the last link
	prev  *link[E] // of the first link the last one; nil: in no queue
	rest  queue[E] // of the first link of a queue in an index: the next queue of the bucket
	entry *E
	// key is the sequence number, from 1, in a list in order; in an index it is the tag under the mask, which all
	// entries of the queue have.
	key uint64
}

// queue is a doubly linked list. The zero value is empty.
type queue[E any] struct{ head *link[E] }

// push appends l, which must be in no queue.
func (q *queue[E]) push(l *link[E]) {
	head := q.head
	if head == nil {
		q.head, l.prev = l, l
		return
	}
	last := head.prev
	last.next, l.prev, head.prev = l, last, l
}

// remove removes l, which must be in q.
func (q *queue[E]) remove(l *link[E]) {
	next, prev, head := l.next, l.prev, q.head
	if l == head {
		q.head = next
	} else {
		prev.next = next
	}
	switch {
	case next != nil:
		next.prev = prev
	case l != head:
		head.prev = prev
	}
	l.next, l.prev = nil, nil
}

// shift removes l, which must be the first of the queue.
func (q *queue[E]) shift(l *link[E]) {
	next := l.next
	if next != nil {
		next.prev = l.prev
	}
	q.head, l.next, l.prev = next, nil, nil
}

// last returns the last link of the queue, which must not be empty.
func (q *queue[E]) last() *link[E] { return q.head.prev }

// after returns the first link of a list in order whose sequence number is above seq; nil if there is
// none. It searches from the end, as callers look for recent entries.
func (q *queue[E]) after(seq uint64) *link[E] {
	if q.head == nil || q.last().key <= seq {
		return nil
	}
	l := q.last()
	for l != q.head && l.prev.key > seq {
		l = l.prev
	}
	return l
}

// all yields the entries that are in a list in order now, except those that are removed before their turn.
// yield may add and remove entries, including its own.
func (q *queue[E]) all(yield func(*E) bool) {
	if q.head == nil {
		return
	}
	limit := q.last().key
	for l := q.head; l != nil && l.key <= limit; {
		seq, next, nextSeq := l.key, l.next, uint64(0)
		if next != nil {
			nextSeq = next.key
		}
		if !yield(l.entry) {
			return
		}
		switch {
		case l.prev != nil && l.key == seq:
			l = l.next
		case next != nil && next.prev != nil && next.key == nextSeq:
			l = next
		default:
			l = q.after(seq)
		}
	}
}
