package base

import "github.com/gucx/gucx/uct"

// PendingQueue is the queue of pending requests of one EP. The zero value is
// empty. It is a field of the EP and must not be copied or moved while in use.
type PendingQueue struct {
	next, prev *PendingQueue   // links in a ring of the arbiter; nil if it is in none
	tail       *uct.PendingReq // circular list: tail.Next is the first; nil if it is empty
	n          int
	running    bool // Func of a request of this queue is running
	failed     bool // posts of the EP return an error, whatever resources are free
}

// Empty reports whether no request waits.
func (q *PendingQueue) Empty() bool { return q.tail == nil }

// Len returns the number of requests in the queue.
func (q *PendingQueue) Len() int { return q.n }

// Blocks reports whether a direct post must return ErrNoResource now, so that it
// does not overtake a pending request. It returns false for a post by Func of a
// request of the queue.
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

// prepend moves all queues of m, in order, to the front of l. m must not be empty, and l must have
// been used before.
func (l *ring) prepend(m *ring) {
	first, last := m.head.next, m.head.prev
	m.head.next, m.head.prev = &m.head, &m.head
	old := l.head.next
	l.head.next, first.prev = first, &l.head
	last.next, old.prev = old, last
}

// Gate reports whether an arbiter should continue. Without a gate, a Dispatch costs a failed post for each
// EP with requests, also if all of them wait for the same resource.
type Gate interface {
	// HasResources reports whether any EP of the iface can post at all. False must imply that Progress
	// of the iface calls Dispatch again when it has become true. It is called before each request.
	HasResources() bool
}

// Arbiter dispatches the pending requests of the EPs of one iface: requests of an
// EP in order, one at a time, and the EPs in turn. The zero value is ready. It
// must not be copied or moved while in use.
type Arbiter struct {
	active  ring // queues with requests, the next one first
	failed  ring // queues with requests of EPs that have failed
	stalled ring // queues whose first request got ErrNoResource in this Dispatch
	n       int  // requests in all queues
	running bool
}

// Len returns the number of requests of all EPs.
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

// Fail records that the EP of q has failed, so that its posts return an error: the next Dispatch runs
// the requests of q also if the gate is closed. It cannot be reverted.
func (a *Arbiter) Fail(q *PendingQueue) {
	q.failed = true
	if q.linked() {
		q.unlink()
		a.failed.pushBack(q)
	}
}

// link adds q, which has requests and is in no ring, at the end of its ring.
func (a *Arbiter) link(q *PendingQueue) {
	if q.failed {
		a.failed.pushBack(q)
	} else {
		a.active.pushBack(q)
	}
}

// Purge empties q and then calls f with each of its requests, in order, except a
// request whose Func is running.
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

// Dispatch runs pending requests until the gate is closed, or every EP has no more requests or
// no resources. It returns the number of requests whose Func did not return ErrNoResource. A nil gate is
// always open. The requests of failed EPs run first, also if the gate is closed. Dispatch runs at most as many
// requests as were pending at the start, so that it returns although requests queue themselves again. A call
// from Func has no effect.
//
// The next call continues with the next EP: an EP whose request got ErrNoResource is the first.
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

// next returns the next queue to dispatch; nil if none may run.
func (a *Arbiter) next(gate Gate) *PendingQueue {
	if q := a.failed.first(); q != nil {
		return q
	}
	if gate != nil && !gate.HasResources() {
		return nil
	}
	return a.active.first()
}

// run runs the first request of q, which is in no ring, and adds q to the right
// ring. It reports whether the request is done, or has queued itself again after a success.
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
	return err != uct.ErrNoResource
}

func (a *Arbiter) stall(q *PendingQueue, r *uct.PendingReq) {
	q.pushFront(r)
	a.n++
	if q.linked() { // Func has queued requests
		q.unlink()
	}
	a.stalled.pushBack(q)
}
