package broken

import (
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/wrap"
)

// badQueues creates queues that break a rule.
type badQueues struct {
	uct.Queuer
	fault Fault
}

func breakingQueues(k Fault) wrap.Hooks {
	return wrap.Hooks{EP: func(e *wrap.EP) { e.Has.Queues = &badQueues{e.Has.Queues, k} }}
}

// NewQueue implements uct.Queuer.
func (b *badQueues) NewQueue(depth int) (uct.Queue, error) {
	q, err := b.Queuer.NewQueue(depth)
	return &badQueue{q, b.fault}, err
}

type badQueue struct {
	uct.Queue
	fault Fault
}

// Stop does nothing for KeepQueue.
func (q *badQueue) Stop() error {
	if q.fault == KeepQueue {
		return nil
	}
	return q.Queue.Stop()
}

// Post reports, for ShortLength, at most the length of the first IOV as the length of the receive.
func (q *badQueue) Post(r *uct.QueueRecv, iov []uct.IOV) error {
	if q.fault != ShortLength {
		return q.Queue.Post(r, iov)
	}
	inner, first := &uct.QueueRecv{}, len(iov[0].Buf)
	inner.Func = func(*uct.QueueRecv) {
		r.Len, r.Status = min(inner.Len, first), inner.Status
		r.Func(r)
	}
	return q.Queue.Post(inner, iov)
}

// forgetfulQueues returns connections whose Recall does nothing.
type forgetfulQueues struct{ uct.Queuer }

// Attach implements uct.QueueSender.
func (q *forgetfulQueues) Attach(number uint32) (uct.QueueConn, error) {
	c, err := q.Queuer.Attach(number)
	return forgetfulConn{c}, err
}

type forgetfulConn struct{ uct.QueueConn }

// Recall returns as if no send were outstanding.
func (forgetfulConn) Recall(*uct.Completion) (bool, error) { return false, nil }
