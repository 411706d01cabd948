package match

// link holds an entry of type E in one queue.
type link[E any] struct {
	next  *link[E] // nil: it is the last
	prev  *link[E] // of the first the last; nil: it is in no queue
	rest  queue[E] // of the first of a queue in an index: the next queue of the bucket
	entry *E
	// key is what the queue is in the order of, or has in common: in a list in order
	// the sequence number, from 1; in an index the tag under the mask.
	key uint64
}

// queue is a list of entries from which any can be taken. The zero value is empty.
type queue[E any] struct{ head *link[E] }

// push makes l, which is in no queue, the last.
func (q *queue[E]) push(l *link[E]) {
	head := q.head
	if head == nil {
		q.head, l.prev = l, l
		return
	}
	last := head.prev
	last.next, l.prev, head.prev = l, last, l
}

// remove takes l out, which is in q.
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

// shift takes the first out of the queue, which is l.
func (q *queue[E]) shift(l *link[E]) {
	next := l.next
	if next != nil {
		next.prev = l.prev
	}
	q.head, l.next, l.prev = next, nil, nil
}

// last is the last of the queue, which is not empty.
func (q *queue[E]) last() *link[E] { return q.head.prev }

// after is the first of a list in order whose sequence number is above seq; nil if there is
// none. It goes back from the end, as callers want what was added lately.
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

// all yields what is in a list in order now, unless it is gone when its turn comes.
// yield may add and remove entries, also the one that it is given.
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
