package provider

import (
	"sync/atomic"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// recvQueue is a QP's own receive queue.
type recvQueue struct {
	prm.RecvRing
	locked bool
	mu     spinLock
	fence  atomic.Uint32 // see settle
}

func (q *recvQueue) post(wr []verbs.RecvWR) (n int, err error) {
	if q.locked {
		q.mu.lock()
	}
	n, err = q.PostRecv(wr)
	if q.locked {
		q.mu.unlock()
	}
	return n, err
}

// storeFence orders the store of the doorbell record before the caller's read of the QP state. A
// device in software stores the state ERR and then reads the record, so one of both sides sees the
// store of the other. A store to any word is a sufficient fence.
func (q *recvQueue) storeFence() { q.fence.Store(0) }
