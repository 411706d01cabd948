package softhca

import (
	"errors"
	"sync/atomic"

	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/internal/sparse"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5/prm"
	"github.com/gucx/gucx/uct/ib/verbs/softhca/internal/ring"
	"github.com/gucx/gucx/uct/ib/verbs/softhca/internal/table"
	"github.com/gucx/gucx/uct/ib/verbs/softhca/internal/xrcdomain"
)

// xrcDomain is an XRC domain as this device has it open. Initiators reach its queues over
// its targets.
type xrcDomain struct {
	xrcdn uint32
	opens int           // how often the driver has it open; under hca.mu
	users int           // SRQs, and references to targets; under hca.mu
	key   xrcdomain.Key // of a domain with a name; else 0
	inode int           // descriptor that keeps the inode of the name
	// dir is the directory of a domain that other devices can be in; else nil.
	dir *xrcdomain.Domain
}

// restingSRQs is how many slots of closed queues are left alone. Each slot that was ever used
// costs 2 KiB of memory, which peers see; a number comes again after 256 queues of the slot.
const srqReuseAt = 1 << 10

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

// xrcTable finds an XRC SRQ of this device by number without a lock.
type xrcTable struct{ slot sparse.Table[recvQueue] }

func (t *xrcTable) find(srqn uint32) *recvQueue {
	if q := t.findAny(srqn); q != nil && !q.xrc.closing.Load() {
		return q
	}
	return nil
}

// findAny is find, also for a queue that is closing: what is in it already completes.
func (t *xrcTable) findAny(srqn uint32) *recvQueue {
	if q := t.slot.Load(srqn % table.MaxXRCSRQ); q != nil && q.srqn == srqn {
		return q
	}
	return nil
}

// CreateXRCSRQ implements prm.XRCHardware. In a shared domain it waits for members that
// change the directory.
func (h *hca) CreateXRCSRQ(p prm.SRQParams) (handle, srqn uint32, err error) {
	view, err := prm.NewRQView(p.Buf, p.Count, p.Stride)
	if err != nil || p.DBRec == (prm.DBRec{}) || p.MaxSGE < 1 {
		return 0, 0, ucs.ErrInvalidParam
	}
	h.mu.Lock()
	d, cq := h.xrcds.get(p.XRCDN), h.cqs.get(p.CQN)
	if d == nil || cq == nil {
		h.mu.Unlock()
		return 0, 0, ucs.ErrInvalidParam
	}
	d.users++
	cq.users++
	h.mu.Unlock()
	q := &recvQueue{hca: h, pdn: p.PDN, view: view, maxSGE: p.MaxSGE, dbrec: p.DBRec}
	q.xrc.domain, q.xrc.cq, q.xrc.uidx = d, cq, p.UserIndex
	q.srqn, err = h.allocNumber(d)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		d.users--
		cq.users--
		return 0, 0, err
	}
	h.showSRQ(q)
	return q.handle(), q.srqn, nil
}

// slotsTried is how many slots are tried before a shared domain is out of numbers: each
// has one for 255 members.
const maxSlotTries = 8

// allocNumber allocates a slot of the device's table and a number of 24 bits that is unique in the
// domain. The low 16 bits of the number are the slot, which is never 0. The other 8 bits differ
// from those of the previous queue in the slot, so that messages for that queue do not reach the
// new one.
func (h *hca) allocNumber(d *xrcDomain) (srqn uint32, err error) {
	for range maxSlotTries {
		h.mu.Lock()
		slot, variant, ok := h.srqIDs.get()
		h.mu.Unlock()
		if !ok {
			return 0, ucs.ErrNoMemory
		}
		if d.dir == nil {
			return uint32(variant)<<16 | slot, nil
		}
		if srqn, err = d.dir.AddSRQ(slot); err == nil {
			return srqn, nil
		}
		defer h.freeSlot(slot) // not before the others were taken
		if !errors.Is(err, ucs.ErrNoMemory) {
			break
		}
	}
	return 0, err
}

func (h *hca) freeSlot(slot uint32) {
	h.mu.Lock()
	h.srqIDs.put(slot)
	h.mu.Unlock()
}

// showSRQ shows an XRC SRQ to peers. mu is held.
func (h *hca) showSRQ(q *recvQueue) {
	e := h.table.SRQ(q.srqn)
	q.xrc.window = &recvWindow{claim: h.claims.Of(q.srqn), entry: e}
	h.xrcSRQs.slot.Store(q.srqn%table.MaxXRCSRQ, q)
	q.xrc.window.claim.Store(0)
	e.Posted.Store(0)
	e.XRCDN.Store(q.xrc.domain.xrcdn)
	e.Inode.Store(q.xrc.domain.key)
	e.PDN.Store(q.pdn)
	e.SRQN.Store(q.srqn)
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

// destroyXRCSRQ is DestroySRQ of an XRC SRQ. Messages that arrive there are cut off. While
// peers are filling a receive it is *ucs.InUseError, and is to be called again.
func (h *hca) destroyXRCSRQ(handle uint32) error {
	h.mu.Lock()
	q := h.findSRQ(handle)
	if q != nil {
		q.xrc.closing.Store(true)
		h.table.SRQ(q.srqn).SRQN.Store(0)
		h.table.Generation().Add(1)
	}
	h.mu.Unlock()
	if q == nil {
		return ucs.ErrInvalidParam
	}
	h.wakeStarving()
	q.mu.Lock() // a post that has not seen closing is over then
	q.mu.Release()
	h.driving.Lock()
	h.eachQP(func(qp *queuePair) { qp.resp.abortInto(q) })
	h.driving.Unlock()
	if inside := h.visitsToQueue(q.srqn); len(inside) > 0 {
		return guard.InUse(inside)
	}
	h.driving.Lock()
	for _, l := range *h.inbound.Load() {
		l.handleLastNotices(q)
	}
	h.xrcSRQs.slot.Store(handle%table.MaxXRCSRQ, nil) // before the notices come to their turn
	h.driving.Unlock()
	if dir := q.xrc.domain.dir; dir != nil {
		if err := dir.RemoveSRQ(q.srqn); err != nil { // another process has written over it
			logger.Warn("number of an SRQ was lost", "device", h.cfg.Name, "srqn", q.srqn, "reason", err)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	q.xrc.domain.users--
	q.xrc.cq.users--
	h.srqIDs.put(handle % table.MaxXRCSRQ)
	return nil
}

// cutOff ends the message that arrives in q, without a completion: its next packet is
// refused. driving is held.
func (s *responder) abortInto(q *recvQueue) {
	if s.open.queue != q {
		return
	}
	s.open.queue = nil
	if s.open.begun() {
		s.open.close()
		s.lostSRQ = true
	}
}

// queueOf is the queue that a message goes to: that of the QP, or the one that it names if
// the QP is an XRC target. nil if the domain has no such queue.
func (qp *queuePair) queueOf(pkt *ring.Packet) *recvQueue {
	if qp.domain == nil {
		return qp.rq
	}
	if q := qp.hca.xrcSRQs.find(pkt.Ext); q != nil && q.xrc.domain == qp.domain {
		return q
	}
	return nil
}

// completesIn is where receives of q that arrive over qp complete, and the user index that
// the completions have.
func (q *recvQueue) cqOf(qp *queuePair) (*compQueue, uint32) {
	if q.xrc.cq != nil {
		return q.xrc.cq, q.xrc.uidx
	}
	return qp.recvCQ, qp.uidx
}
