package ucp

import "github.com/gucx/gucx/ucp/internal/waitqueue"

// waiting are the operations of an EP that wait, the state of replaying them, and what waits for their end.
type waiting struct {
	waitqueue.Queue[*Request]
	ordered    int  // messages among them: the next one waits behind them
	replaying  bool // in replay
	again      bool // replay has more to do
	all        bool // and not just with messages
	stillWaits bool // the message in turn has to
	unsorted   bool // they are not in the order of issue
	leaving    bool // the EP leaves when no request awaits the peer
}

// Empty reports that nothing waits. q may be nil.
func (q *waiting) Empty() bool { return q == nil || q.Queue.Empty() }

// messages is how many messages wait. q may be nil.
func (q *waiting) messages() int {
	if q == nil {
		return 0
	}
	return q.ordered
}

// isReplaying reports that replay starts operations again. q may be nil.
func (q *waiting) isReplaying() bool { return q != nil && q.replaying }

// queue is the queue of operations that wait.
func (e *EP) queue() *waiting {
	if e.waiting == nil {
		e.waiting = &waiting{}
	}
	return e.waiting
}

// keepWaiting puts a request behind those that wait, or one that is in turn before
// them. Messages that follow one which waits wait too.
func (e *EP) keepWaiting(r *Request) {
	q := e.queue()
	switch {
	case r.flags&reqInTurn == 0:
		q.Add(r)
	case q.Passing():
		q.Defer(r, r.stage.inOrder)
	default:
		q.stillWaits = true
		q.PutBack(r)
	}
	if r.stage.inOrder {
		q.ordered++
		r.stage.class.waits(r)
	}
}

func (e *EP) dropWaiting(r *Request) {
	if e.waiting.Empty() || !e.waiting.Remove(r, r.stage.inOrder) {
		return
	}
	r.flags &^= reqWaiting
	if r.stage.inOrder {
		e.waiting.ordered--
		if c := r.stage.class; c.dequeued != nil {
			c.dequeued(r)
		}
		e.ready()
	}
}

// replay starts the waiting requests that can go on now, in order. What that brings
// about (an inline completion may end a fence) is seen to before it returns.
func (e *EP) replay() {
	e.queue().all = true
	e.replayMessages()
}

// replayMessages is replay when only messages can go on: there is credit, or the one before
// them is posted. It stops at the first that cannot, as those behind it wait for that.
func (e *EP) replayMessages() {
	q := e.waiting
	q.again = true
	if q.replaying {
		return
	}
	q.replaying = true
	for q.again {
		q.again = false
		if q.all || !e.messagesFirst() {
			q.all = false
			e.replayOnce()
			if b := e.fence.barrier; b != nil && e.ops.first == b {
				b.flushStart()
			}
			continue
		}
		for e.messagesFirst() && e.replayFirst() {
		}
		q.again = q.again || !q.stillWaits && !q.Empty() // messages behind what has no lane yet
	}
	q.replaying = false
	e.ready()
}

// messagesFirst reports that a message waits, and nothing else before it.
func (e *EP) messagesFirst() bool {
	return !e.waiting.Empty() && !e.waiting.unsorted && e.fence.count == 0 && e.waiting.First().stage.inOrder
}

// nextWaiting takes out the request that has waited longest, which is in turn.
func (e *EP) nextWaiting() *Request {
	r := e.waiting.Pop()
	if r.stage.inOrder {
		e.waiting.ordered--
	}
	r.flags |= reqInTurn
	return r
}

// replayFirst starts the message that has waited longest. It reports false if it waits again.
func (e *EP) replayFirst() bool {
	r := e.nextWaiting()
	r.flags = r.flags&^reqWaiting | reqAhead
	e.waiting.stillWaits = false
	r.launch()
	r.flags &^= reqInTurn
	return !e.waiting.stillWaits
}

// replayOnce starts all waiting requests, of which some may wait again.
func (e *EP) replayOnce() {
	q := e.waiting
	if q.unsorted {
		e.sortWaiting()
	}
	if q.Empty() {
		return
	}
	q.BeginPass()
	closed := e.fence.barrier != nil // a fence that is not over: what comes later stays
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
			e.fence.barrier = r
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
	e.waiting.unsorted = false
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
	if e.waiting == nil {
		return nil
	}
	if e.waiting.unsorted {
		e.sortWaiting()
	}
	e.waiting.ordered = 0
	if e.waiting.Empty() {
		return nil
	}
	return e.waiting.TakeAll()
}
