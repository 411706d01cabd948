package provider

import (
	"slices"
	"sync"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// eventQueue converts asynchronous events of object numbers to events of objects, and queues
// them for NextAsyncEvent.
type eventQueue struct {
	mu     sync.Mutex
	more   sync.Cond
	closed bool
	queue  []verbs.AsyncEvent
	qps    map[uint32][]*verbs.QP // an XRC target can have several
	srqs   map[uint32]*verbs.SRQ
	cqs    map[uint32]*compQueue
}

func (e *eventQueue) init() {
	e.more.L = &e.mu
	e.qps = make(map[uint32][]*verbs.QP)
	e.srqs = make(map[uint32]*verbs.SRQ)
	e.cqs = make(map[uint32]*compQueue)
}

// AsyncEvent implements AsyncSink. It drops events of objects that are closed.
func (e *eventQueue) AsyncEvent(t verbs.EventType, number uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ev := verbs.AsyncEvent{Type: t}
	ok := true
	switch t {
	case verbs.EventCQErr:
		var c *compQueue
		if c, ok = e.cqs[number]; ok {
			c.overrun.Store(true)
			ev.CQ = c.v
		}
	case verbs.EventSRQErr, verbs.EventSRQLimitReached:
		ev.SRQ, ok = e.srqs[number]
	case verbs.EventDeviceFatal:
	default:
		for _, ev.QP = range e.qps[number] {
			e.add(ev)
		}
		return
	}
	if ok {
		e.add(ev)
	}
}

// Unreachable implements AsyncSink. At most one event for each QP and destination is queued.
func (e *eventQueue) Unreachable(qpn uint32, gid verbs.GID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ev := verbs.AsyncEvent{Type: verbs.EventUnreachable, GID: gid}
	for _, ev.QP = range e.qps[qpn] {
		if !slices.Contains(e.queue, ev) {
			e.add(ev)
		}
	}
}

// add queues an event. mu is held.
func (e *eventQueue) add(ev verbs.AsyncEvent) {
	if !e.closed {
		e.queue = append(e.queue, ev)
		e.more.Signal()
	}
}

// next waits for an event.
func (e *eventQueue) next() (verbs.AsyncEvent, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.queue) == 0 && !e.closed {
		e.more.Wait()
	}
	if e.closed {
		return verbs.AsyncEvent{}, ucs.ErrClosed
	}
	ev := e.queue[0]
	e.queue = append(e.queue[:0], e.queue[1:]...)
	return ev, nil
}

func (e *eventQueue) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	e.more.Broadcast()
}

// drop removes the events for which gone returns true. mu is held.
func (e *eventQueue) drop(gone func(*verbs.AsyncEvent) bool) {
	kept := e.queue[:0]
	for i := range e.queue {
		if !gone(&e.queue[i]) {
			kept = append(kept, e.queue[i])
		}
	}
	clear(e.queue[len(kept):])
	e.queue = kept
}

// addQP adds v for QP number n, and reports whether it is the first one.
func (e *eventQueue) addQP(n uint32, v *verbs.QP) (first bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.qps[n] = append(e.qps[n], v)
	return len(e.qps[n]) == 1
}

// removeQP removes v for QP number n, and reports whether it was the last one.
func (e *eventQueue) removeQP(n uint32, v *verbs.QP) (last bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.qps[n] = slices.DeleteFunc(e.qps[n], func(q *verbs.QP) bool { return q == v })
	if last = len(e.qps[n]) == 0; last {
		delete(e.qps, n)
	}
	e.drop(func(ev *verbs.AsyncEvent) bool { return ev.QP == v })
	return last
}

func (e *eventQueue) addSRQ(n uint32, v *verbs.SRQ) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.srqs[n] = v
}

func (e *eventQueue) removeSRQ(n uint32, v *verbs.SRQ) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.srqs, n)
	e.drop(func(ev *verbs.AsyncEvent) bool { return ev.SRQ == v })
}

func (e *eventQueue) addCQ(c *compQueue) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cqs[c.cqn] = c
}

func (e *eventQueue) removeCQ(c *compQueue) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.cqs, c.cqn)
	e.drop(func(ev *verbs.AsyncEvent) bool { return ev.CQ == c.v })
}
