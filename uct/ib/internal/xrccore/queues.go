package xrccore

import (
	"errors"
	"slices"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/verbs"
)

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
func (it *Iface) endDrained(drained bool) (n int) {
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
