package ucp

import "slices"

// waitQueue is operations that wait, in order. Taking the first, and putting it back, take as
// long with a thousand others as with none.
type waitQueue struct {
	list []*Request
	head int // of list; those before it are nil
}

// empty reports that nothing waits. q may be nil.
func (q *waitQueue) empty() bool { return q == nil || q.head == len(q.list) }

// first is the one that has waited longest; there must be one.
func (q *waitQueue) first() *Request { return q.list[q.head] }

// add puts a request behind the others.
func (q *waitQueue) add(r *Request) {
	if len(q.list) == cap(q.list) && 2*q.head > len(q.list) {
		n := copy(q.list, q.list[q.head:])
		clear(q.list[n:])
		q.list, q.head = q.list[:n], 0
	}
	q.list = append(q.list, r)
}

// pop takes the first.
func (q *waitQueue) pop() *Request {
	r := q.list[q.head]
	q.list[q.head] = nil
	if q.head++; q.empty() {
		q.list, q.head = q.list[:0], 0
	}
	return r
}

// putBack puts a request before the others: the one that pop has returned.
func (q *waitQueue) putBack(r *Request) {
	if q.head == 0 {
		q.list = slices.Insert(q.list, 0, r)
		return
	}
	q.head--
	q.list[q.head] = r
}

// remove takes a request out, if it is there.
func (q *waitQueue) remove(r *Request) bool {
	i := slices.Index(q.list[q.head:], r)
	if i >= 0 {
		q.list = slices.Delete(q.list, q.head+i, q.head+i+1)
	}
	return i >= 0
}

// take empties the queue.
func (q *waitQueue) take() []*Request {
	list := q.list[q.head:]
	*q = waitQueue{}
	return list
}

// keepWaiting puts a request behind those that wait, or a message that is in turn before
// them. Messages that follow one which waits wait too.
func (e *EP) keepWaiting(r *Request) {
	if e.waiting == nil {
		e.waiting = &waitQueue{}
	}
	if r.flags&reqInTurn != 0 {
		e.stillWaits = true
		e.waiting.putBack(r)
	} else {
		e.waiting.add(r)
	}
	if r.stage.inOrder {
		e.msgs.waiting++
		e.msgs.unbind()
	}
}

func (e *EP) dropWaiting(r *Request) {
	if e.waiting.empty() || !e.waiting.remove(r) {
		return
	}
	r.flags &^= reqWaiting
	if r.stage.inOrder {
		e.msgs.waiting--
		e.bindMessages()
	}
}

// replay starts the waiting requests that can go on now, in order. What that brings
// about (an inline completion may end a fence) is seen to before it returns.
func (e *EP) replay() {
	e.replayAll = true
	e.replayMessages()
}

// replayMessages is replay when only messages can go on: there is credit, or the one before
// them is posted. It stops at the first that cannot, as those behind it wait for that.
func (e *EP) replayMessages() {
	e.again = true
	if e.replaying {
		return
	}
	e.replaying = true
	for e.again {
		e.again = false
		if e.replayAll || !e.messagesFirst() {
			e.replayAll = false
			e.replayOnce()
			if b := e.barrier; b != nil && e.ops.first == b {
				b.flushStart()
			}
			continue
		}
		for e.messagesFirst() && e.replayFirst() {
		}
		e.again = e.again || !e.stillWaits && !e.waiting.empty() // messages behind what has no lane yet
	}
	e.replaying = false
	e.bindMessages()
}

// messagesFirst reports that a message waits, and nothing else before it.
func (e *EP) messagesFirst() bool {
	return !e.waiting.empty() && !e.unsorted && e.fences == 0 && e.waiting.first().stage.inOrder
}

// replayFirst starts the message that has waited longest. It reports false if it waits again.
func (e *EP) replayFirst() bool {
	r := e.waiting.pop()
	e.msgs.waiting--
	r.flags = r.flags&^reqWaiting | reqAhead | reqInTurn
	e.stillWaits = false
	r.launch()
	r.flags &^= reqInTurn
	return !e.stillWaits
}

// replayOnce starts all waiting requests, of which some may wait again.
func (e *EP) replayOnce() {
	queue := e.takeWaiting()
	closed := e.barrier != nil // a fence that is not over: what comes later stays
	for _, r := range queue {
		switch {
		case closed && !r.stage.ahead && r.flags&reqAhead == 0:
			e.keepWaiting(r)
		case r.stage.fence && !e.waiting.empty(): // behind what has no lane yet
			closed = true
			e.keepWaiting(r)
		case r.stage.fence:
			closed = true
			r.flags &^= reqWaiting
			e.barrier = r
		default:
			r.flags = r.flags&^reqWaiting | reqAhead
			r.launch()
		}
	}
}

// sortWaiting puts what waits into the order of issue again, after some of it has come back
// from a lane that broke: behind what came later, which may wait for it.
func (e *EP) sortWaiting() {
	e.unsorted = false
	queue := make([]*Request, 0, len(e.waiting.list))
	for r := e.ops.first; r != nil; r = r.next {
		if r.flags&reqWaiting != 0 {
			queue = append(queue, r)
		}
	}
	*e.waiting = waitQueue{list: queue}
}

// takeWaiting empties the queue of those that wait.
func (e *EP) takeWaiting() []*Request {
	if e.unsorted {
		e.sortWaiting()
	}
	if e.msgs != nil {
		e.msgs.waiting = 0
	}
	if e.waiting.empty() {
		return nil
	}
	return e.waiting.take()
}
