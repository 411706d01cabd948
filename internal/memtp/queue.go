package memtp

import (
	"slices"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Limits of receive queues.
const (
	maxQueued     = 300000 // bytes of a message
	maxQueueDepth = 64
)

// queue is a receive queue. Its ring contains first the receives that have a message, then those without.
type queue struct {
	iface    *Iface
	e        *EP // EP of the peer whose messages the queue receives
	number   uint32
	recvs    []posted
	first    int
	n        int    // receives in the ring; under world.mu
	full     int    // of these, those that have a message; under world.mu
	received uint64 // result of Received
	stopped  bool   // under world.mu
}

// posted is a receive in the ring.
type posted struct {
	r      *uct.QueueRecv
	iov    [maxIOV]uct.IOV
	pieces int
	len    int // length of its message in bytes
}

// NewQueue implements uct.Queuer.
func (e *EP) NewQueue(depth int) (uct.Queue, error) {
	i := e.iface
	switch {
	case e.closed:
		return nil, i.md.fail("new queue", uct.ErrClosed)
	case depth < 1 || depth > maxQueueDepth:
		return nil, i.md.fail("new queue", uct.ErrInvalidParam)
	case len(i.queues) == i.conf.Queues:
		return nil, i.md.fail("new queue", uct.ErrNoMemory)
	}
	w := i.world
	w.mu.Lock()
	defer w.mu.Unlock()
	q := &queue{iface: i, e: e, number: uint32(w.newID()), recvs: make([]posted, depth)}
	w.queues[q.number] = q
	i.queues = append(i.queues, q)
	return q, nil
}

// Number implements uct.Queue.
func (q *queue) Number() uint32 { return q.number }

// Received implements uct.Queue.
func (q *queue) Received() uint64 { return q.received }

// Post implements uct.Queue.
func (q *queue) Post(r *uct.QueueRecv, iov []uct.IOV) error {
	if len(iov) > maxIOV {
		return uct.ErrTooLong
	}
	if !covered(iov, uct.AccessLocalWrite) {
		return uct.ErrInvalidParam
	}
	w := q.iface.world
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case q.stopped:
		return uct.ErrClosed
	case q.n == len(q.recvs):
		return uct.ErrNoResource
	}
	p := &q.recvs[(q.first+q.n)%len(q.recvs)]
	p.r, p.pieces = r, copy(p.iov[:], iov)
	q.n++
	for _, i := range w.ifaces { // wake senders that wait for a receive
		i.signal(uct.EventSendComp)
	}
	return nil
}

// Stop implements uct.Queue.
func (q *queue) Stop() error {
	w := q.iface.world
	w.mu.Lock()
	if q.stopped {
		w.mu.Unlock()
		return nil
	}
	q.stopped = true
	for _, i := range w.ifaces {
		i.signal(uct.EventSendComp)
	}
	w.mu.Unlock()
	q.completeAll()
	return nil
}

// Close implements uct.Queue.
func (q *queue) Close() error {
	i := q.iface
	i.queues = slices.DeleteFunc(i.queues, func(x *queue) bool { return x == q })
	err := q.Stop()
	q.completeAll()
	i.world.mu.Lock()
	defer i.world.mu.Unlock()
	delete(i.world.queues, q.number)
	return err
}

// waits reports whether the queue has a receive without a message. The caller holds world.mu.
func (q *queue) waits() bool { return q.full < q.n }

// deliver copies a message to the first receive without one. The caller holds world.mu.
func (q *queue) deliver(o *op) {
	p := &q.recvs[(q.first+q.full)%len(q.recvs)]
	p.len = o.len()
	dst := p.iov[:p.pieces]
	for _, v := range o.iov[:o.pieces] {
		dst = fill(dst, v.Buf)
	}
	q.full++
	q.iface.filled++
	q.iface.signal(uct.EventRecv)
}

// fill copies src to the first bytes of dst and returns the rest of dst. It drops bytes that do not fit.
func fill(dst []uct.IOV, src []byte) []uct.IOV {
	for len(src) > 0 && len(dst) > 0 {
		n := copy(dst[0].Buf, src)
		src, dst[0].Buf = src[n:], dst[0].Buf[n:]
		if len(dst[0].Buf) == 0 {
			dst = dst[1:]
		}
	}
	return dst
}

// completeAll completes the receives of a stopped queue.
func (q *queue) completeAll() {
	for q.notifyFirst() {
	}
}

// notifyFirst calls the callback of the first receive, if it is complete.
func (q *queue) notifyFirst() bool {
	w := q.iface.world
	w.mu.Lock()
	if q.full == 0 && !(q.stopped && q.n > 0) {
		w.mu.Unlock()
		return false
	}
	p := &q.recvs[q.first]
	r := p.r
	r.Len, r.Status = 0, ucs.StatusCanceled
	if q.full > 0 {
		r.Len, r.Status = p.len, ucs.StatusOK
		q.full--
		q.iface.filled--
		q.received++
	}
	*p = posted{}
	q.first = (q.first + 1) % len(q.recvs)
	q.n--
	w.mu.Unlock()
	r.Func(r)
	return true
}

// notifyCompleted calls the callbacks of completed receives, except of those posted during the call.
func (i *Iface) notifyCompleted() int {
	n := 0
	for k := 0; k < len(i.queues); k++ {
		q := i.queues[k]
		for left := q.n; left > 0 && q.notifyFirst(); left-- {
			n++
		}
	}
	return n
}
