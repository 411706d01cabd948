package base

import "github.com/gucx/gucx/uct"

// PendingQueue is the requests that wait on one EP, in order. The zero value is
// empty. It is a part of the EP and must not be copied or moved while in use.
type PendingQueue struct {
	next, prev *PendingQueue   // in the arbiter's ring; nil when in none
	tail       *uct.PendingReq // circular list: tail.Next is the first; nil when empty
	n          int
	running    bool // a request of this queue is in its Func
	failed     bool // posts of the EP return an error, whatever is free
}

// Empty reports whether no request waits.
func (q *PendingQueue) Empty() bool { return q.tail == nil }

// Len is the number of requests that wait.
func (q *PendingQueue) Len() int { return q.n }

// Blocks reports whether a direct post must return ErrNoResource now, so that it
// does not overtake a request that waits. A post made by the Func of one of the
// queue's own requests is not held back.
func (q *PendingQueue) Blocks() bool { return q.tail != nil && !q.running }

func (q *PendingQueue) pushBack(r *uct.PendingReq) {
	q.pushFront(r)
	q.tail = r
}

func (q *PendingQueue) pushFront(r *uct.PendingReq) {
	if q.tail == nil {
		q.tail, r.Next = r, r
	} else {
		r.Next, q.tail.Next = q.tail.Next, r
	}
	q.n++
}

func (q *PendingQueue) popFront() *uct.PendingReq {
	r := q.tail.Next
	if r == q.tail {
		q.tail = nil
	} else {
		q.tail.Next = r.Next
	}
	r.Next = nil
	q.n--
	return r
}

func (q *PendingQueue) linked() bool { return q.next != nil }

func (q *PendingQueue) unlink() {
	q.next.prev, q.prev.next = q.prev, q.next
	q.next, q.prev = nil, nil
}

// ring is a circular list of queues around a sentinel.
type ring struct{ head PendingQueue }

func (l *ring) first() *PendingQueue {
	if l.head.next == nil || l.head.next == &l.head {
		return nil
	}
	return l.head.next
}

func (l *ring) pushBack(q *PendingQueue) {
	if l.head.next == nil {
		l.head.next, l.head.prev = &l.head, &l.head
	}
	q.next, q.prev = &l.head, l.head.prev
	q.prev.next, l.head.prev = q, q
}

// prepend moves all of m, which is not empty, in order to the front of l, which
// has been used before.
func (l *ring) prepend(m *ring) {
	first, last := m.head.next, m.head.prev
	m.head.next, m.head.prev = &m.head, &m.head
	old := l.head.next
	l.head.next, first.prev = first, &l.head
	last.next, old.prev = old, last
}

// Gate reports whether an arbiter should continue. Without a gate a Dispatch costs a refused post for each
// EP with requests, also when all of them lack the same resource.
type Gate interface {
	// HasResources reports whether any EP of the iface can post at all. False must imply that Progress
	// of the iface calls Dispatch again when it has become true. It is called before each request.
	HasResources() bool
}

// Arbiter dispatches the pending requests of the EPs of one iface: requests of an
// EP in order, one at a time, and the EPs in turn. The zero value is ready. It
// must not be copied or moved while in use.
type Arbiter struct {
	active  ring // queues with requests, next turn first
	failed  ring // queues with requests of EPs that have failed
	stalled ring // queues whose first request got ErrNoResource in this Dispatch
	n       int  // requests in all queues
	running bool
}

// Len is the number of requests that wait on all EPs.
func (a *Arbiter) Len() int { return a.n }

// Add queues r at the end of q. ErrInvalidParam if r is queued already. A request
// may be added at any time, also by a Func that Dispatch runs.
func (a *Arbiter) Add(q *PendingQueue, r *uct.PendingReq) error {
	if r.Next != nil || r.Func == nil {
		return uct.ErrInvalidParam
	}
	q.pushBack(r)
	a.n++
	if !q.linked() {
		a.link(q)
	}
	return nil
}

// Fail notes that the EP of q has failed, so that its posts return an error: the next Dispatch runs
// the requests of q also when the gate is closed. It is for good.
func (a *Arbiter) Fail(q *PendingQueue) {
	q.failed = true
	if q.linked() {
		q.unlink()
		a.failed.pushBack(q)
	}
}

// link puts q, which is in no ring and has requests, behind the others.
func (a *Arbiter) link(q *PendingQueue) {
	if q.failed {
		a.failed.pushBack(q)
	} else {
		a.active.pushBack(q)
	}
}

// Purge empties q and then calls f with each of its requests, in order, but not with a
// request that is running Func.
func (a *Arbiter) Purge(q *PendingQueue, f func(*uct.PendingReq)) {
	if q.tail == nil {
		return
	}
	n, r := q.n, q.tail.Next
	a.n -= n
	q.tail, q.n = nil, 0
	if q.linked() {
		q.unlink()
	}
	for range n {
		next := r.Next
		r.Next = nil
		f(r)
		r = next
	}
}

// Dispatch runs waiting requests until gate closes or every EP has none left or
// is out of resources, and returns how many left their queue. A nil gate is
// always open. The requests of EPs that have failed come first, and pass the gate. No more requests run than were waiting at the start, so requests
// that queue themselves again cannot hold the caller. Called from inside a Func
// it does nothing.
//
// The turn is kept between calls: an EP that was refused is first next time.
func (a *Arbiter) Dispatch(gate Gate) int {
	if a.n == 0 || a.running {
		return 0
	}
	a.running = true
	done := 0
	for left := a.n; left > 0; left-- {
		q := a.next(gate)
		if q == nil {
			break
		}
		q.unlink()
		if a.run(q) {
			done++
		}
	}
	if a.stalled.first() != nil {
		a.active.prepend(&a.stalled)
	}
	a.running = false
	return done
}

// next returns the queue that is dispatched next; nil if none may run.
func (a *Arbiter) next(gate Gate) *PendingQueue {
	if q := a.failed.first(); q != nil {
		return q
	}
	if gate != nil && !gate.HasResources() {
		return nil
	}
	return a.active.first()
}

// run runs the first request of q, which is in no ring, and puts q into the ring
// where it belongs. It reports whether the request is done.
func (a *Arbiter) run(q *PendingQueue) bool {
	r := q.popFront()
	a.n--
	q.running = true
	err := r.Func(r)
	q.running = false
	if err == uct.ErrNoResource && r.Next == nil {
		a.stall(q, r)
		return false
	}
	if q.tail != nil && !q.linked() {
		a.link(q)
	}
	return true
}

func (a *Arbiter) stall(q *PendingQueue, r *uct.PendingReq) {
	q.pushFront(r)
	a.n++
	if q.linked() { // Func added requests behind itself
		q.unlink()
	}
	a.stalled.pushBack(q)
}
