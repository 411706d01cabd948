package ucp

import "slices"

// waitQueue is operations that wait, in order. Taking the first, and putting it back, take as
// long with a thousand others as with none.
//
// While all of them are started again, one after the other, those that wait again are kept
// aside: they go before those whose turn has not come, and before what is issued meanwhile.
type waitQueue struct {
	list []*Request
	head int // of list; those before it are nil

	all      bool // all are being started
	again    []*Request
	messages int // of again: those that keep their order
}

// empty reports that nothing waits. q may be nil.
func (q *waitQueue) empty() bool { return q == nil || q.passed() && len(q.again) == 0 }

// passed reports that nothing is left in the list.
func (q *waitQueue) passed() bool { return q.head == len(q.list) }

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
	if q.head++; q.passed() {
		q.list, q.head = q.list[:0], 0
	}
	return r
}

// setAside keeps a request that waits again while all are being started.
func (q *waitQueue) setAside(r *Request) {
	q.again = append(q.again, r)
	if r.stage.inOrder {
		q.messages++
	}
}

// restore ends the starting of all: what waits again is the queue.
func (q *waitQueue) restore() {
	if len(q.again) > 0 { // nothing is left in the list
		q.list, q.head, q.again = q.again, 0, q.list[:0]
	}
	q.all, q.messages = false, 0
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
	if i := slices.Index(q.again, r); i >= 0 {
		q.again = slices.Delete(q.again, i, i+1)
		if r.stage.inOrder {
			q.messages--
		}
		return true
	}
	i := slices.Index(q.list[q.head:], r)
	if i >= 0 {
		q.list = slices.Delete(q.list, q.head+i, q.head+i+1)
	}
	return i >= 0
}

// take empties the queue.
func (q *waitQueue) take() []*Request {
	list := slices.Concat(q.again, q.list[q.head:])
	*q = waitQueue{all: q.all}
	return list
}

// keepWaiting puts a request behind those that wait, or one that is in turn before
// them. Messages that follow one which waits wait too.
func (e *EP) keepWaiting(r *Request) {
	if e.waiting == nil {
		e.waiting = &waitQueue{}
	}
	switch {
	case r.flags&reqInTurn == 0:
		e.waiting.add(r)
	case e.waiting.all:
		e.waiting.setAside(r)
	default:
		e.stillWaits = true
		e.waiting.putBack(r)
	}
	if r.stage.inOrder {
		e.msgs.waiting++
		e.msgs.unbind()
		e.msgs.queue.enter(r)
	}
}

func (e *EP) dropWaiting(r *Request) {
	if e.waiting.empty() || !e.waiting.remove(r) {
		return
	}
	r.flags &^= reqWaiting
	if r.stage.inOrder {
		e.msgs.waiting--
		if r.msg != nil && r.msg.queued != nil {
			e.msgs.dequeue(r)
			e.msgs.queue.canceled()
		}
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
	if e.msgs != nil && e.msgs.queue.replies() {
		e.w.schedule(e)
	}
}

// messagesFirst reports that a message waits, and nothing else before it.
func (e *EP) messagesFirst() bool {
	return !e.waiting.empty() && !e.unsorted && e.fences == 0 && e.waiting.first().stage.inOrder
}

// nextWaiting takes out the request that has waited longest, which is in turn.
func (e *EP) nextWaiting() *Request {
	r := e.waiting.pop()
	if r.stage.inOrder {
		e.msgs.waiting--
	}
	r.flags |= reqInTurn
	return r
}

// replayFirst starts the message that has waited longest. It reports false if it waits again.
func (e *EP) replayFirst() bool {
	r := e.nextWaiting()
	r.flags = r.flags&^reqWaiting | reqAhead
	e.stillWaits = false
	r.launch()
	r.flags &^= reqInTurn
	return !e.stillWaits
}

// replayOnce starts all waiting requests, of which some may wait again.
func (e *EP) replayOnce() {
	if e.unsorted {
		e.sortWaiting()
	}
	q := e.waiting
	if q.empty() {
		return
	}
	q.all = true
	closed := e.barrier != nil // a fence that is not over: what comes later stays
	for !q.passed() {
		r := e.nextWaiting()
		switch {
		case closed && !r.stage.ahead && r.flags&reqAhead == 0:
			e.keepWaiting(r)
		case r.stage.fence && len(q.again) > 0: // behind what has no lane yet
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
		r.flags &^= reqInTurn
	}
	q.restore()
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
	*e.waiting = waitQueue{list: queue, all: e.waiting.all}
}

// takeWaiting empties the queue of those that wait.
func (e *EP) takeWaiting() []*Request {
	if e.unsorted {
		e.sortWaiting()
	}
	if e.msgs != nil {
		e.msgs.waiting, e.msgs.queue = 0, nil
	}
	if e.waiting.empty() {
		return nil
	}
	return e.waiting.take()
}
