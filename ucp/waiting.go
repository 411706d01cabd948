package ucp

import "github.com/gucx/gucx/ucp/internal/waitqueue"

// keepWaiting puts a request behind those that wait, or one that is in turn before
// them. Messages that follow one which waits wait too.
func (e *EP) keepWaiting(r *Request) {
	if e.waiting == nil {
		e.waiting = &waitqueue.Queue[*Request]{}
	}
	switch {
	case r.flags&reqInTurn == 0:
		e.waiting.Add(r)
	case e.waiting.Passing():
		e.waiting.Defer(r, r.stage.inOrder)
	default:
		e.stillWaits = true
		e.waiting.PutBack(r)
	}
	if r.stage.inOrder {
		e.msgs.waiting++
		e.msgs.unbind()
		e.msgs.queue.enter(r)
	}
}

func (e *EP) dropWaiting(r *Request) {
	if e.waiting.Empty() || !e.waiting.Remove(r, r.stage.inOrder) {
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
		e.again = e.again || !e.stillWaits && !e.waiting.Empty() // messages behind what has no lane yet
	}
	e.replaying = false
	e.bindMessages()
	if e.msgs != nil && e.msgs.queue.replies() {
		e.w.schedule(e)
	}
}

// messagesFirst reports that a message waits, and nothing else before it.
func (e *EP) messagesFirst() bool {
	return !e.waiting.Empty() && !e.unsorted && e.fences == 0 && e.waiting.First().stage.inOrder
}

// nextWaiting takes out the request that has waited longest, which is in turn.
func (e *EP) nextWaiting() *Request {
	r := e.waiting.Pop()
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
	if q.Empty() {
		return
	}
	q.BeginPass()
	closed := e.barrier != nil // a fence that is not over: what comes later stays
	for !q.PassDone() {
		r := e.nextWaiting()
		switch {
		case closed && !r.stage.ahead && r.flags&reqAhead == 0:
			e.keepWaiting(r)
		case r.stage.fence && len(q.Deferred()) > 0: // behind what has no lane yet
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
	q.EndPass()
}

// sortWaiting puts what waits into the order of issue again, after some of it has come back
// from a lane that broke: behind what came later, which may wait for it.
func (e *EP) sortWaiting() {
	e.unsorted = false
	queue := make([]*Request, 0, len(e.waiting.Pending()))
	for r := e.ops.first; r != nil; r = r.next {
		if r.flags&reqWaiting != 0 {
			queue = append(queue, r)
		}
	}
	e.waiting.Replace(queue)
}

// takeWaiting empties the queue of those that wait.
func (e *EP) takeWaiting() []*Request {
	if e.unsorted {
		e.sortWaiting()
	}
	if e.msgs != nil {
		e.msgs.waiting, e.msgs.queue = 0, nil
	}
	if e.waiting.Empty() {
		return nil
	}
	return e.waiting.TakeAll()
}
