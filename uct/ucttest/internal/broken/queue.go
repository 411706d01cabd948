package broken

import (
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/wrap"
)

// badQueues makes queues that break a rule.
type badQueues struct {
	uct.Queuer
	kind Kind
}

func breakingQueues(k Kind) wrap.Hooks {
	return wrap.Hooks{EP: func(e *wrap.EP) { e.Has.Queues = &badQueues{e.Has.Queues, k} }}
}

// NewQueue makes a bad one.
func (b *badQueues) NewQueue(depth int) (uct.Queue, error) {
	q, err := b.Queuer.NewQueue(depth)
	return &badQueue{q, b.kind}, err
}

type badQueue struct {
	uct.Queue
	kind Kind
}

// Stop does nothing for KeepQueue.
func (q *badQueue) Stop() error {
	if q.kind == KeepQueue {
		return nil
	}
	return q.Queue.Stop()
}

// Post forgets, for ShortLength, what is beyond the first piece.
func (q *badQueue) Post(r *uct.QueueRecv, iov []uct.IOV) error {
	if q.kind != ShortLength {
		return q.Queue.Post(r, iov)
	}
	inner, first := &uct.QueueRecv{}, len(iov[0].Buf)
	inner.Func = func(*uct.QueueRecv) {
		r.Len, r.Status = min(inner.Len, first), inner.Status
		r.Func(r)
	}
	return q.Queue.Post(inner, iov)
}

// forgetfulQueues hands out connections whose Recall does nothing.
type forgetfulQueues struct{ uct.Queuer }

// Attach implements uct.QueueSender.
func (q *forgetfulQueues) Attach(number uint32) (uct.QueueConn, error) {
	c, err := q.Queuer.Attach(number)
	return forgetfulConn{c}, err
}

type forgetfulConn struct{ uct.QueueConn }

// Recall says that all is certain.
func (forgetfulConn) Recall(*uct.Completion) (bool, error) { return false, nil }
