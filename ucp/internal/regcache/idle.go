package regcache

import "io"

// idleList lists the entries that no operation uses, most recently used first.
type idleList[M io.Closer] struct {
	front, back *Entry[M]
	count       int
	bytes       uint64
}

// pushFront adds e, which must be in no list.
func (l *idleList[M]) pushFront(e *Entry[M]) {
	e.next = l.front
	if l.front != nil {
		l.front.prev = e
	} else {
		l.back = e
	}
	l.front = e
	l.count++
	l.bytes += e.len()
}

// remove removes e, which must be in the list.
func (l *idleList[M]) remove(e *Entry[M]) {
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		l.front = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		l.back = e.prev
	}
	e.prev, e.next = nil, nil
	l.count--
	l.bytes -= e.len()
}
