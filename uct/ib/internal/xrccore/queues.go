package xrccore

import (
	"errors"
	"slices"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// queueSet is the part of an iface with its receive queues and the connections to those of peers.
type queueSet struct {
	*ifaceCore
	limits   *uct.QueueAttr // as Attr has them
	spare    *verbs.XRCD    // a private domain that no EP has taken yet; may be nil
	conns    table[conn]
	queues   table[recvQueue]
	cqFree   int // completions that no queue or connection has taken
	sges     []verbs.SGE
	recv     [1]verbs.RecvWR
	draining []*recvQueue
	closing  int  // connections of closed EPs that have sends under way
	lost     bool // the completion queue has failed
}

// open prepares for queues, of which there may be as many as limits says.
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

// completed takes the completion of a receive or of a send to a queue.
func (it *queueSet) completed(wc *verbs.WC) {
	if it.lost { // it came between the poll that found none and the error, and has ended
		return
	}
	id := workID(wc.ID)
	if id.isRecv() {
		if q := it.queues.at(id.number()); q != nil {
			q.completed(id.slot(), wc)
		}
		return
	}
	if c := it.conns.at(id.number()); c != nil {
		c.completed(wc)
	}
}

// cqLost ends what is under way after an error of the completion queue: here that of connections, when the
// device has let go of it, and the receives of queues in endLost.
func (it *queueSet) cqLost() {
	it.lost = true
	for _, c := range it.conns.all() {
		c.lost()
	}
	for _, q := range it.queues.all() {
		if !q.stopped { // else it is listed, or its receives have ended
			it.draining = append(it.draining, q)
		}
	}
}

// await waits for peers in the middle of messages to queues; see recvQueue.await.
func (it *queueSet) await() error {
	for _, q := range it.queues.all() {
		if err := q.await(); err != nil {
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

// domain is the private XRC domain of an EP. Its queues and the targets of its peer are there and no others, so
// the device refuses messages of other peers. The EP and its queues use it; the last one closes it.
type domain struct {
	*verbs.XRCD
	users int
}

func openPrivate(md *ib.MD) (*verbs.XRCD, error) {
	return md.Context().OpenXRCD(verbs.XRCDInitAttr{FD: verbs.PrivateXRCD})
}

// release is called by each user, once. d may be nil.
func (d *domain) release() error {
	if d == nil {
		return nil
	}
	if d.users--; d.users > 0 {
		return nil
	}
	return d.Close()
}

// endDrained ends the receives of queues that were stopped before this round, once what had
// come by then has been polled: the completion queue was empty, or so many rounds have
// found enough in it.
func (it *queueSet) endDrained(drained bool) (n int) {
	if it.lost {
		return it.endLost()
	}
	for i := 0; i < len(it.draining); {
		q := it.draining[i]
		if rounds := it.round - q.stoppedIn; rounds == 0 || !drained && rounds <= it.allPolled {
			i++
			continue
		}
		it.draining = slices.Delete(it.draining, i, i+1)
		n += q.endRest(ucs.StatusCanceled)
	}
	return n
}

// endLost ends the receives of queues after an error of the completion queue. A peer may be in the middle of
// a message: then the next Progress tries again.
func (it *queueSet) endLost() (n int) {
	list := it.draining
	it.draining = nil
	for _, q := range list {
		if q.closed { // by the Func of another's receive
			continue
		}
		var inUse *ucs.InUseError
		if errors.As(q.srq.Stop(), &inUse) { // a device that refuses otherwise has failed as a whole
			it.draining = append(it.draining, q)
			continue
		}
		q.stopped = true
		n += q.endRest(ucs.StatusIOError)
	}
	return n
}

// taken is how what is taken back ends: without a completion queue it is not known what the device
// has done.
func (it *queueSet) taken(st ucs.Status) ucs.Status {
	if it.lost {
		return ucs.StatusIOError
	}
	return st
}
