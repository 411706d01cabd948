package softhca

import (
	"errors"
	"sync/atomic"

	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/softhca/internal/ring"
	"github.com/gucx/gucx/internal/softhca/internal/table"
	"github.com/gucx/gucx/internal/softhca/internal/xrcdomain"
	"github.com/gucx/gucx/internal/sparse"
	"github.com/gucx/gucx/ucs"
)

// xrcDomain is an XRC domain that this device has open. Initiators reach its SRQs over its
// targets.
type xrcDomain struct {
	xrcdn uint32
	opens int           // XRCDs of the driver; under hca.mu
	users int           // SRQs, and references to targets; under hca.mu
	key   xrcdomain.Key // of a domain of an inode; else 0
	inode int           // descriptor that prevents reuse of the inode
	// dir is the directory of a domain that other devices can join; else nil.
	dir *xrcdomain.Domain
}

// srqReuseAt is the number of free slots from which slots are reused. Each used slot costs
// 2 KiB of memory that peers map; a number is reused after 256 queues of its slot.
const srqReuseAt = 1 << 10

// xrcQueue has the additional fields of an XRC SRQ; in a basic SRQ it is zero.
type xrcQueue struct {
	domain  *xrcDomain
	window  *recvWindow
	closing atomic.Bool // no message is accepted
	cq      *compQueue  // of its receives
	uidx    uint32
}

// xrcHandle is set in the handles of XRC SRQs, and in those of no other SRQs of a device.
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

// findAny is find, also for a queue that is closing: receives that are filled complete.
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

// maxSlotTries is the number of slots that allocNumber tries before a shared domain is out of
// numbers: each slot has numbers for 255 members.
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
		defer h.freeSlot(slot) // after the next tries, so that they get other slots
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

// destroyXRCSRQ is DestroySRQ of an XRC SRQ. It aborts messages that are arriving there. While
// peers are filling a receive it returns *ucs.InUseError, and the caller must call it again.
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
	q.mu.Lock() // a post that has not seen closing has returned then
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
	h.xrcSRQs.slot.Store(handle%table.MaxXRCSRQ, nil) // before the notices are drained
	h.driving.Unlock()
	if dir := q.xrc.domain.dir; dir != nil {
		if err := dir.RemoveSRQ(q.srqn); err != nil { // another process has overwritten it
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

// abortInto ends the open message to q without a completion: its next packet is rejected.
// driving is held.
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

// queueOf returns the receive queue of a message: that of the QP, or the one that the message
// names if the QP is an XRC target. nil if the domain has no such queue.
func (qp *queuePair) queueOf(pkt *ring.Packet) *recvQueue {
	if qp.domain == nil {
		return qp.rq
	}
	if q := qp.hca.xrcSRQs.find(pkt.Ext); q != nil && q.xrc.domain == qp.domain {
		return q
	}
	return nil
}

// cqOf returns the CQ of receives of q that arrive over qp, and the user index of the
// completions.
func (q *recvQueue) cqOf(qp *queuePair) (*compQueue, uint32) {
	if q.xrc.cq != nil {
		return q.xrc.cq, q.xrc.uidx
	}
	return qp.recvCQ, qp.uidx
}
