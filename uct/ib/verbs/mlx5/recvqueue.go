package mlx5

import (
	"sync/atomic"

	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5/prm"
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

// settle puts the store of the doorbell record before the caller's look at the state of
// the QP: a device in software stores the state ERR and then looks at the record, so that
// one of them sees the other. The store that it takes is to any word.
func (q *recvQueue) settle() { q.fence.Store(0) }
