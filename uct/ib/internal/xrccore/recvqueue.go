package xrccore

import (
	"slices"

	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/buffer"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// recvQueue is an XRC SRQ. Receives may complete in another order than they were posted, because messages
// arrive over several connections. So each receive has a slot, from a free list.
type recvQueue struct {
	it       *queueSet
	domain   *domain
	srq      *verbs.SRQ
	queue    buffer.RecvPoster // of srq
	number   uint32
	index    uint32 // in it.queues
	slots    []recvSlot
	free     []uint32 // slots
	posts    uint64
	received uint64

	stopped   bool
	stoppedIn uint64 // round
	closed    bool
}

// recvSlot is the slot of a posted receive; r is nil if it is free.
type recvSlot struct {
	r   *uct.QueueRecv
	seq uint64
}

var _ uct.Queue = (*recvQueue)(nil)

// Number implements uct.Queue.
func (q *recvQueue) Number() uint32 { return q.number }

// Received implements uct.Queue.
func (q *recvQueue) Received() uint64 { return q.received }

// Post implements uct.Queue.
func (q *recvQueue) Post(r *uct.QueueRecv, iov []uct.IOV) error {
	it := q.it
	switch {
	case q.stopped && it.cqFailed:
		return rccore.ErrCQLost
	case q.stopped:
		return uct.ErrClosed
	case len(iov) > it.limits.MaxRecvIOV:
		return uct.ErrTooLong
	}
	sges, ok := it.MD().SGEs(it.sges[:0], iov)
	if !ok || !ib.Writable(iov) {
		return uct.ErrInvalidParam
	}
	last := len(q.free) - 1
	if last < 0 {
		return uct.ErrNoResource
	}
	slot := q.free[last]
	it.recv[0] = verbs.RecvWR{ID: recvID(q.index, slot), SGList: sges}
	if _, err := q.queue.PostRecv(it.recv[:]); err != nil {
		return err
	}
	q.free = q.free[:last]
	q.posts++
	q.slots[slot] = recvSlot{r, q.posts}
	return nil
}

// handleCompletion handles the completion of a receive by the device.
func (q *recvQueue) handleCompletion(slot uint32, wc *verbs.WC) {
	r := q.slots[slot].r
	if wc.Status == verbs.WCSuccess {
		q.received++
		q.finishRecv(slot, int(wc.ByteLen), ucs.StatusOK)
	} else {
		q.finishRecv(slot, 0, ib.Status(wc.Status))
	}
	r.Func(r)
}

// finishRecv frees the slot of a receive and completes it with n bytes and a status.
func (q *recvQueue) finishRecv(slot uint32, n int, st ucs.Status) {
	r := q.slots[slot].r
	r.Len, r.Status = n, st
	q.slots[slot] = recvSlot{}
	q.free = append(q.free, slot)
}

// completePosted completes the posted receives with st, in the order in which they were posted.
func (q *recvQueue) completePosted(st ucs.Status) int {
	var rest []recvSlot
	for i, s := range q.slots {
		if s.r != nil {
			rest = append(rest, s)
			q.finishRecv(uint32(i), 0, st)
		}
	}
	slices.SortFunc(rest, func(a, b recvSlot) int { return int(int64(a.seq - b.seq)) })
	for _, s := range rest {
		s.r.Func(s.r)
	}
	return len(rest)
}

// Stop implements uct.Queue. Receives complete in a later Progress.
func (q *recvQueue) Stop() error {
	if q.stopped {
		return nil
	}
	if err := q.srq.Stop(); err != nil {
		return err
	}
	q.stopped, q.stoppedIn = true, q.it.round
	if !q.it.cqFailed { // otherwise completeAfterCQError handles it
		q.it.draining = append(q.it.draining, q)
	}
	return nil
}

// stopAndWait stops the queue. It waits for peers in the middle of a message, at most ucs.RevokeLimit.
func (q *recvQueue) stopAndWait() error { return guard.AwaitUse(q.Stop) }

// Close implements uct.Queue. It cancels all posted receives, also one that has received a message but has not
// completed. WithNumber receive such messages, stop the queue first and wait until its receives have completed.
func (q *recvQueue) Close() error {
	if q.closed {
		return nil
	}
	if err := q.stopAndWait(); err != nil {
		return err
	}
	it := q.it
	if err := q.srq.Close(); err != nil {
		return it.opError("close queue", err)
	}
	it.poster.CloseRecv(q.queue)
	q.closed = true
	it.draining = slices.DeleteFunc(it.draining, func(x *recvQueue) bool { return x == q })
	it.queues.remove(q.index)
	it.cqFree += len(q.slots)
	q.completePosted(it.cancelStatus(ucs.StatusCanceled))
	return q.domain.release()
}
