package softhca

import (
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/softhca/internal/spin"
	"github.com/gucx/gucx/internal/softhca/internal/table"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// recvQueue is the device's side of the receive queue of a QP, or of an SRQ.
type recvQueue struct {
	hca    *hca
	srqn   uint32 // 0 if it is not an SRQ
	xrc    xrcQueue
	pdn    uint32
	view   prm.RQView
	maxSGE int
	dbrec  prm.DBRec
	users  int // QPs of an SRQ; under hca.mu

	mu       spin.Mutex
	consumed uint16
	next     uint16 // SRQ: entry to consume next, along the linked list
	limit    int    // SRQ: event below this many entries; 0 is off
}

// recvEntry is a consumed receive work request.
type recvEntry struct {
	index uint16 // of the entry
	nsge  int
	total uint64
	sge   prm.SGList
}

func (q *recvQueue) shared() bool { return q.srqn != 0 }

// handle returns the handle of an SRQ for the driver.
func (q *recvQueue) handle() uint32 {
	if q.xrc.domain != nil {
		return xrcHandle | q.srqn%table.MaxXRCSRQ
	}
	return q.srqn
}

// pop consumes the next entry; false if none is posted. syn is not 0 if the entry is malformed.
func (q *recvQueue) pop(e *recvEntry) (ok bool, syn prm.Syndrome) {
	q.mu.Lock()
	left := q.dbrec.Recv() - q.consumed
	if left == 0 {
		q.mu.Release()
		return false, prm.SyndromeOK
	}
	e.index = q.consumed
	if q.shared() {
		e.index = q.next
	}
	segs := q.view.Entry(uint32(e.index))
	if q.shared() {
		q.next = prm.SRQNext(&segs[0])
		segs = segs[1:]
	}
	e.nsge, e.total, syn = prm.DecodeRecv(segs[:min(q.maxSGE, len(segs))], &e.sge)
	q.consumed++
	hit := int(left)-1 < q.limit
	if hit {
		q.limit = 0
	}
	q.mu.Release()
	if hit {
		q.hca.raise(verbs.EventSRQLimitReached, q.handle())
	}
	return true, syn
}

// CreateSRQ implements prm.Hardware.
func (h *hca) CreateSRQ(p prm.SRQParams) (uint32, error) {
	view, err := prm.NewRQView(p.Buf, p.Count, p.Stride)
	if err != nil || p.DBRec == (prm.DBRec{}) || p.MaxSGE < 1 {
		return 0, ucs.ErrInvalidParam
	}
	q := &recvQueue{hca: h, pdn: p.PDN, view: view,
		maxSGE: p.MaxSGE, dbrec: p.DBRec}
	h.mu.Lock()
	defer h.mu.Unlock()
	q.srqn, err = h.srqs.add(q)
	return q.srqn, err
}

// ArmSRQ implements prm.Hardware.
func (h *hca) ArmSRQ(srqn uint32, limit int) error {
	h.mu.Lock()
	q := h.findSRQ(srqn)
	h.mu.Unlock()
	if q == nil || limit < 0 || limit > int(q.view.Count()) {
		return ucs.ErrInvalidParam
	}
	q.mu.Lock()
	hit := int(q.dbrec.Recv()-q.consumed) < limit
	q.limit = limit
	if hit {
		q.limit = 0
	}
	q.mu.Release()
	if hit {
		h.raise(verbs.EventSRQLimitReached, srqn)
	}
	return nil
}

// DestroySRQ implements prm.Hardware.
func (h *hca) DestroySRQ(srqn uint32) error {
	if srqn&xrcHandle != 0 {
		return h.destroyXRCSRQ(srqn)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	q := h.srqs.get(srqn)
	if q == nil {
		return ucs.ErrInvalidParam
	}
	if q.users > 0 {
		return ucs.ErrBusy
	}
	h.srqs.remove(srqn)
	return nil
}

// findSRQ returns the SRQ of a handle; nil if there is none. mu is held.
func (h *hca) findSRQ(handle uint32) *recvQueue {
	if handle&xrcHandle != 0 {
		return h.xrcSRQs.slot.Load(handle % table.MaxXRCSRQ)
	}
	return h.srqs.get(handle)
}
