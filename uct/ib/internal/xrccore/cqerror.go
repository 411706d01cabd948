package xrccore

import (
	"errors"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Lost implements rccore.Extension. What connections have under way ends here, when the device has let go
// of it, and the receives of queues in endLost.
func (it *Iface) Lost() {
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

// lost ends what is under way, of an EP that has failed or is closed.
func (c *conn) lost() {
	_ = c.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState) // a device that refuses has failed as a whole
	c.e.it.poster.ResetSend(c.queue)
	c.link, c.posted = linkNone, c.tail
	for !c.idle() {
		c.pop().Complete(ucs.StatusIOError)
	}
	c.settle()
}

// endLost ends the receives of queues after an error of the completion queue. A peer may be in the middle of
// a message: then the next Progress tries again.
func (it *Iface) endLost() (n int) {
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
func (it *Iface) taken(st ucs.Status) ucs.Status {
	if it.lost {
		return ucs.StatusIOError
	}
	return st
}
