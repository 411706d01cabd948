package ucp

// requestList is a list of requests in the order in which they were added, linked by next and prev.
type requestList struct{ first, last *Request }

func (l *requestList) add(r *Request) {
	r.prev, r.next = l.last, nil
	if l.last == nil {
		l.first = r
	} else {
		l.last.next = r
	}
	l.last = r
}

func (l *requestList) addFirst(r *Request) {
	r.prev, r.next = nil, l.first
	if l.first == nil {
		l.last = r
	} else {
		l.first.prev = r
	}
	l.first = r
}

// insert adds r before another request of the list; nil: at the end.
func (l *requestList) insert(r, before *Request) {
	switch {
	case before == nil:
		l.add(r)
	case before.prev == nil:
		l.addFirst(r)
	default:
		r.prev, r.next = before.prev, before
		before.prev.next, before.prev = r, r
	}
}

func (l *requestList) remove(r *Request) {
	if r.prev == nil {
		l.first = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		l.last = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.next, r.prev = nil, nil
}

// all yields the requests from the oldest to the latest.
func (l *requestList) all(yield func(*Request) bool) {
	for r := l.first; r != nil && yield(r); r = r.next {
	}
}
