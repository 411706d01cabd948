package softhca

import (
	"fmt"
	"sync/atomic"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5/prm"
)

// xrcDomain is an XRC domain as this device has it open. Initiators reach its queues over
// its targets.
type xrcDomain struct {
	xrcdn uint32
	users int // SRQs, and references to targets; under hca.mu
}

// number is the number of the queue at a slot of the device's table, 24 bits. Its low 16
// bits are the slot, and it is never 0, as slots are not. variant differs from that of the
// queue that had the slot before, so that what was meant for that one finds none.
func (d *xrcDomain) number(slot uint32, variant uint8) (srqn uint32) {
	return uint32(variant)<<16 | slot
}

// restingSRQs is how many slots of closed queues are left alone. Each slot that was ever used
// costs 2 KiB of memory, which peers see; a number comes again after 256 queues of the slot.
const restingSRQs = 1 << 10

// xrcQueue is what an XRC SRQ has that a basic one has not; a basic one is the zero value.
type xrcQueue struct {
	domain  *xrcDomain
	window  *recvWindow
	closing atomic.Bool // nothing arrives any more
	cq      *compQueue  // where its receives complete
	uidx    uint32
}

// xrcHandle marks the names of XRC SRQs among those of all SRQs of a device.
const xrcHandle = 1 << 23

var (
	_ prm.XRCHardware = (*hca)(nil)
	_ prm.RecvWatcher = (*hca)(nil)
)

// OpenXRCD implements prm.XRCHardware. Domains with a name are not shared yet.
func (h *hca) OpenXRCD(attr verbs.XRCDInitAttr) (uint32, error) {
	if attr.FD != verbs.PrivateXRCD {
		return 0, fmt.Errorf("domain that is shared: %w", ucs.ErrUnsupported)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	d := &xrcDomain{}
	var err error
	d.xrcdn, err = h.xrcds.add(d)
	return d.xrcdn, err
}

// CloseXRCD implements prm.XRCHardware.
func (h *hca) CloseXRCD(xrcdn uint32) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.xrcds.get(xrcdn)
	if d == nil {
		return ucs.ErrInvalidParam
	}
	if d.users > 0 {
		return ucs.ErrBusy
	}
	h.xrcds.remove(xrcdn)
	return nil
}

// xrcTable finds an XRC SRQ of this device by number without a lock.
type xrcTable struct {
	slot [maxXRCSRQ]atomic.Pointer[recvQueue]
}

func (t *xrcTable) find(srqn uint32) *recvQueue {
	if q := t.findAny(srqn); q != nil && !q.xrc.closing.Load() {
		return q
	}
	return nil
}

// findAny is find, also for a queue that is closing: what is in it already completes.
func (t *xrcTable) findAny(srqn uint32) *recvQueue {
	if q := t.slot[srqn%maxXRCSRQ].Load(); q != nil && q.srqn == srqn {
		return q
	}
	return nil
}

// CreateXRCSRQ implements prm.XRCHardware.
func (h *hca) CreateXRCSRQ(p prm.SRQParams) (handle, srqn uint32, err error) {
	view, err := prm.NewRQView(p.Buf, p.Count, p.Stride)
	if err != nil || p.DBRec == (prm.DBRec{}) || p.MaxSGE < 1 {
		return 0, 0, ucs.ErrInvalidParam
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	d, cq := h.xrcds.get(p.XRCDN), h.cqs.get(p.CQN)
	if d == nil || cq == nil {
		return 0, 0, ucs.ErrInvalidParam
	}
	slot, variant, ok := h.srqIDs.take()
	if !ok {
		return 0, 0, ucs.ErrNoMemory
	}
	q := &recvQueue{hca: h, srqn: d.number(slot, variant), pdn: p.PDN, view: view, maxSGE: p.MaxSGE, dbrec: p.DBRec}
	e := h.table.srq(q.srqn)
	q.xrc.domain, q.xrc.cq, q.xrc.uidx = d, cq, p.UserIndex
	q.xrc.window = &recvWindow{claim: h.claims.of(q.srqn), entry: e}
	d.users++
	cq.users++
	h.xrcSRQs.slot[slot].Store(q)
	q.xrc.window.claim.Store(0)
	e.posted.Store(0)
	e.xrcdn.Store(d.xrcdn)
	e.pdn.Store(p.PDN)
	e.srqn.Store(q.srqn)
	return q.handle(), q.srqn, nil
}

// RecvDoorbell implements prm.RecvWatcher.
func (h *hca) RecvDoorbell(handle uint32) prm.RecvDoorbell {
	h.mu.Lock()
	defer h.mu.Unlock()
	if q := h.findSRQ(handle); q != nil && q.xrc.window != nil {
		return q
	}
	return nil
}

// destroyXRCSRQ is DestroySRQ of an XRC SRQ. Messages that arrive there are cut off. It
// waits for peers that are filling a receive: *ucs.InUseError if they do not end, and then
// it can be called again.
func (h *hca) destroyXRCSRQ(handle uint32) error {
	h.mu.Lock()
	q := h.findSRQ(handle)
	if q != nil {
		q.xrc.closing.Store(true)
		h.table.srq(q.srqn).srqn.Store(0)
		h.table.generation().Add(1)
	}
	h.mu.Unlock()
	if q == nil {
		return ucs.ErrInvalidParam
	}
	h.wakeStarving()
	q.mu.lock() // a post that has not seen closing is over then
	q.mu.release()
	h.driving.lock()
	h.eachQP(func(qp *queuePair) { qp.resp.cutOff(q) })
	h.driving.unlock()
	if inside := h.await(h.visitsToQueue(q.srqn), ucs.RevokeLimit); len(inside) > 0 {
		return inUseError(inside)
	}
	h.driving.lock()
	for _, l := range *h.inbound.Load() {
		l.lastFilled(q)
	}
	h.xrcSRQs.slot[handle%maxXRCSRQ].Store(nil) // before the notices come to their turn
	h.driving.unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	q.xrc.domain.users--
	q.xrc.cq.users--
	h.srqIDs.give(handle % maxXRCSRQ)
	return nil
}

// cutOff ends the message that arrives in q, without a completion: its next packet is
// refused. driving is held.
func (s *responder) cutOff(q *recvQueue) {
	if s.open.queue != q {
		return
	}
	s.open.queue = nil
	if s.open.begun() {
		s.open.close()
		s.orphan = true
	}
}

// CreateTarget implements prm.XRCHardware.
func (h *hca) CreateTarget(xrcdn uint32) (uint32, error) {
	h.quarantine.release()
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.xrcds.get(xrcdn)
	if d == nil {
		return 0, ucs.ErrInvalidParam
	}
	qp, err := h.newQP(verbs.QPTypeXRCRecv)
	if err != nil {
		return 0, err
	}
	qp.domain, qp.refs = d, 1
	qp.withoutQueues()
	d.users++
	qp.entry.xrcdn.Store(xrcdn)
	h.showQP(qp)
	return qp.qpn, nil
}

// OpenTarget implements prm.XRCHardware.
func (h *hca) OpenTarget(xrcdn, qpn uint32) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	d, qp := h.xrcds.get(xrcdn), h.qps.find(qpn)
	if d == nil || qp == nil || qp.domain != d || qp.refs == 0 {
		return fmt.Errorf("target %#x is not in the domain: %w", qpn, ucs.ErrInvalidParam)
	}
	qp.refs++
	d.users++
	return nil
}

// unrefer takes one reference to an XRC target back, and reports whether it was the last.
// Of another QP it does nothing: it has one.
func (h *hca) unrefer(qp *queuePair) (last bool) {
	if qp.domain == nil {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	qp.domain.users--
	qp.refs--
	return qp.refs == 0
}

// queueOf is the queue that a message goes to: that of the QP, or the one that it names if
// the QP is an XRC target. nil if the domain has no such queue.
func (qp *queuePair) queueOf(pkt *packet) *recvQueue {
	if qp.domain == nil {
		return qp.rq
	}
	if q := qp.hca.xrcSRQs.find(pkt.ext); q != nil && q.xrc.domain == qp.domain {
		return q
	}
	return nil
}

// completesIn is where receives of q that arrive over qp complete, and the user index that
// the completions have.
func (q *recvQueue) completesIn(qp *queuePair) (*compQueue, uint32) {
	if q.xrc.cq != nil {
		return q.xrc.cq, q.xrc.uidx
	}
	return qp.recvCQ, qp.uidx
}
