package xrccore

import (
	"errors"
	"slices"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// queueSet is the part of an iface for queues: its receive queues, and its connections to queues of peers.
type queueSet struct {
	*ifaceCore
	limits       *uct.QueueAttr // as in Attr
	unusedDomain *verbs.XRCD    // a private domain that no EP uses yet, or nil
	conns        table[conn]
	queues       table[recvQueue]
	cqFree       int // unreserved slots of the completion queue
	sges         []verbs.SGE
	recv         [1]verbs.RecvWR
	draining     []*recvQueue
	closing      int  // number of connections of closed EPs with sends in flight
	cqFailed     bool // the completion queue has failed
}

// open initializes the set, for the number of queues in limits.
func (it *queueSet) open(h *ifaceCore, limits *uct.QueueAttr) {
	dev := h.MD().DeviceAttr()
	it.ifaceCore, it.limits, it.sges = h, limits, make([]verbs.SGE, 0, maxRecvIOV)
	*limits = uct.QueueAttr{
		MaxMessage: h.MD().MaxMessage(),
		MaxIOV:     h.Config().TxMaxSGE,
		MaxRecvIOV: min(maxRecvIOV, dev.MaxSRQSGE),
		MaxDepth:   min(maxQueueDepth, h.cfg.QueueCQDepth/2, dev.MaxSRQWR),
		MaxQueues:  min(maxQueues, h.cfg.QueueCQDepth/2, dev.MaxSRQ),
		MaxConns:   h.cfg.QueueConns,
	}
}

// handleCompletion handles the completion of a receive or of a send to a queue.
func (it *queueSet) handleCompletion(wc *verbs.WC) {
	if it.cqFailed { // the completion arrived between the last poll and the error; the operation is already complete
		return
	}
	id := workID(wc.ID)
	if id.isRecv() {
		if q := it.queues.at(id.number()); q != nil {
			q.handleCompletion(id.slot(), wc)
		}
		return
	}
	if c := it.conns.at(id.number()); c != nil {
		c.handleCompletion(wc)
	}
}

// handleCQError handles an error of the completion queue. It completes the sends of connections when the
// device has released them; completeAfterCQError completes the receives of queues.
func (it *queueSet) handleCQError() {
	it.cqFailed = true
	for _, c := range it.conns.all() {
		c.cancelAfterCQError()
	}
	for _, q := range it.queues.all() {
		if !q.stopped { // otherwise q is in draining, or its receives are complete
			it.draining = append(it.draining, q)
		}
	}
}

// stopAll waits for peers in the middle of messages to queues; see recvQueue.await.
func (it *queueSet) stopAll() error {
	for _, q := range it.queues.all() {
		if err := q.stopAndWait(); err != nil {
			return err
		}
	}
	return nil
}

// closeAll closes the queues.
func (it *queueSet) closeAll() (errs error) {
	for _, q := range it.queues.all() {
		errs = errors.Join(errs, q.Close())
	}
	return errs
}

// domain is the private XRC domain of an EP. It contains only the queues of the EP and the targets
// of its peer, so the device refuses messages of other peers. The EP and its queues use it; the
// last user closes it.
type domain struct {
	*verbs.XRCD
	users int
}

func openPrivate(md *ib.MD) (*verbs.XRCD, error) {
	return md.Context().OpenXRCD(verbs.XRCDInitAttr{FD: verbs.PrivateXRCD})
}

// release must be called once by each user. d may be nil.
func (d *domain) release() error {
	if d == nil {
		return nil
	}
	if d.users--; d.users > 0 {
		return nil
	}
	return d.Close()
}

// completeDrained completes the receives of queues that were stopped before this round, after all completions
// that the completion queue had at that time are polled: the queue was empty (drained), or allPolled
// rounds have passed.
func (it *queueSet) completeDrained(drained bool) (n int) {
	if it.cqFailed {
		return it.completeAfterCQError()
	}
	for i := 0; i < len(it.draining); {
		q := it.draining[i]
		if rounds := it.round - q.stoppedIn; rounds == 0 || !drained && rounds <= it.allPolled {
			i++
			continue
		}
		it.draining = slices.Delete(it.draining, i, i+1)
		n += q.completePosted(ucs.StatusCanceled)
	}
	return n
}

// completeAfterCQError completes the receives of queues after an error of the completion queue. If a peer is in
// the middle of a message, the next Progress tries again.
func (it *queueSet) completeAfterCQError() (n int) {
	list := it.draining
	it.draining = nil
	for _, q := range list {
		if q.closed { // the completion of another receive closed it
			continue
		}
		var inUse *ucs.InUseError
		if errors.As(q.srq.Stop(), &inUse) { // any other error means that the whole device has failed
			it.draining = append(it.draining, q)
			continue
		}
		q.stopped = true
		n += q.completePosted(ucs.StatusIOError)
	}
	return n
}

// cancelStatus returns the status of a canceled operation: st, or StatusIOError after an error of the completion
// queue, because it is unknown whether the device has executed the operation.
func (it *queueSet) cancelStatus(st ucs.Status) ucs.Status {
	if it.cqFailed {
		return ucs.StatusIOError
	}
	return st
}
