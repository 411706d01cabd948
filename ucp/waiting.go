package ucp

import "github.com/gucx/gucx/ucp/internal/waitqueue"

// waiting is the queue of operations of an EP that wait, with the state of replaying them.
type waiting struct {
	waitqueue.Queue[*Request]
	ordered            int  // number of messages in the queue; a new message waits for them
	replaying          bool // replay is running
	replayAgain        bool // replay must run again
	all                bool // replay must start all operations, not only messages
	currentWaits       bool // the first message must wait again
	unsorted           bool // the queue is not in the order of issue
	closesWhenAnswered bool // the EP disconnects when no request awaits the peer
}

// Empty reports whether the queue is empty. q may be nil.
func (q *waiting) Empty() bool { return q == nil || q.Queue.Empty() }

// messages returns the number of waiting messages. q may be nil.
func (q *waiting) messages() int {
	if q == nil {
		return 0
	}
	return q.ordered
}

// isReplaying reports whether replay is starting operations. q may be nil.
func (q *waiting) isReplaying() bool { return q != nil && q.replaying }

// queue returns the queue of waiting operations.
func (e *EP) queue() *waiting {
	if e.waiting == nil {
		e.waiting = &waiting{}
	}
	return e.waiting
}

// enqueueWaiting adds a request to the queue: at the end, or, if it was removed because it was its turn, among the deferred
// requests of the pass or at the front. If a message waits, all later messages wait too.
func (e *EP) enqueueWaiting(r *Request) {
	q := e.queue()
	switch {
	case r.flags&reqDequeued == 0:
		q.Add(r)
	case q.Passing():
		q.Defer(r, r.stage.inOrder)
	default:
		q.currentWaits = true
		q.PutBack(r)
	}
	if r.stage.inOrder {
		q.ordered++
		r.stage.class.waits(r)
	}
}

// insertWaiting adds a message to the operations of the EP and to those that wait, before another one in EP.ops; nil: at the
// end. The caller calls useCredit later.
func (e *EP) insertWaiting(r, before *Request) {
	e.ops.insert(r, before)
	r.flags |= placeListed | reqWaiting
	r.trackUnposted()
	q := e.queue()
	q.unsorted = true
	q.ordered++
	r.stage.class.waits(r)
}

func (e *EP) dequeueWaiting(r *Request) {
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

// replay starts the waiting requests that can be posted now, in order. Starting them may permit further requests, for example
// when an operation completes at once and ends a fence: replay starts these too before it returns.
func (e *EP) replay() {
	e.queue().all = true
	e.replayMessages()
}

// replayMessages is replay if only messages can be posted: credit has arrived, or the previous message is posted. It stops at
// the first message that cannot be posted, because later ones must wait for it.
func (e *EP) replayMessages() {
	q := e.waiting
	q.replayAgain = true
	if q.replaying {
		return
	}
	q.replaying = true
	for q.replayAgain {
		q.replayAgain = false
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
		q.replayAgain = q.replayAgain || !q.currentWaits && !q.Empty() // messages behind an operation that has no lane yet
	}
	q.replaying = false
	e.ready()
}

// messagesFirst reports whether a message is first in the queue.
func (e *EP) messagesFirst() bool {
	return !e.waiting.Empty() && !e.waiting.unsorted && e.fence.count == 0 && e.waiting.First().stage.inOrder
}

// nextWaiting removes the first request of the queue, whose turn it is.
func (e *EP) nextWaiting() *Request {
	r := e.waiting.Pop()
	if r.stage.inOrder {
		e.waiting.ordered--
	}
	r.flags |= reqDequeued
	return r
}

// replayFirst starts the first message. It returns false if the message waits again.
func (e *EP) replayFirst() bool {
	r := e.nextWaiting()
	r.flags = r.flags&^reqWaiting | reqUnfenced
	e.waiting.currentWaits = false
	r.launch()
	r.flags &^= reqDequeued
	return !e.waiting.currentWaits
}

// replayOnce starts all waiting requests; some may wait again.
func (e *EP) replayOnce() {
	q := e.waiting
	if q.unsorted {
		e.sortWaiting()
	}
	if q.Empty() {
		return
	}
	q.BeginPass()
	closed := e.fence.barrier != nil || e.link.blocksStarts() // a fence is not complete: later operations remain in the queue
	for !q.PassDone() {
		r := e.nextWaiting()
		switch {
		case closed && !r.stage.unfenced && r.flags&reqUnfenced == 0:
			e.enqueueWaiting(r)
		case r.stage.fence && len(q.Deferred()) > 0: // behind an operation that has no lane yet
			closed = true
			e.enqueueWaiting(r)
		case r.stage.fence:
			closed = true
			r.flags &^= reqWaiting
			e.fence.barrier = r
		default:
			r.flags = r.flags&^reqWaiting | reqUnfenced
			r.launch()
		}
		r.flags &^= reqDequeued
	}
	q.EndPass()
}

// sortWaiting restores the order of issue after requests have returned
// from a broken lane to the end of the queue. Later requests may wait for them.
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

// takeWaiting empties the queue and returns its requests.
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
