package softhca

import (
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// recvQueue is the device's side of a receive queue, of one QP or shared.
type recvQueue struct {
	hca    *hca
	srqn   uint32 // 0 for the queue of one QP
	pdn    uint32
	uidx   uint32 // in CQEs: of the SRQ, or of the QP
	view   mlx5.RQView
	maxSGE int
	dbrec  mlx5.DBRec
	users  int // QPs of an SRQ; under hca.mu

	mu       spinLock
	consumed uint16
	next     uint16 // SRQ: entry to consume next, along the linked list
	limit    int    // SRQ: event below this many entries; 0 is off
}

// recvEntry is a consumed receive work request.
type recvEntry struct {
	index uint16 // of the entry
	nsge  int
	total uint64
	sge   mlx5.SGList
}

func (q *recvQueue) shared() bool { return q.srqn != 0 }

// take consumes the next entry; false when none is posted. syn tells of an entry
// that is malformed.
func (q *recvQueue) take(e *recvEntry) (ok bool, syn mlx5.Syndrome) {
	q.mu.lock()
	left := q.dbrec.Recv() - q.consumed
	if left == 0 {
		q.mu.release()
		return false, mlx5.SyndromeOK
	}
	e.index = q.consumed
	if q.shared() {
		e.index = q.next
	}
	segs := q.view.Entry(uint32(e.index))
	if q.shared() {
		q.next = mlx5.SRQNext(&segs[0])
		segs = segs[1:]
	}
	e.nsge, e.total, syn = mlx5.DecodeRecv(segs[:min(q.maxSGE, len(segs))], &e.sge)
	q.consumed++
	hit := int(left)-1 < q.limit
	if hit {
		q.limit = 0
	}
	q.mu.release()
	if hit {
		q.hca.raise(verbs.EventSRQLimitReached, q.srqn)
	}
	return true, syn
}

// CreateSRQ implements mlx5.Hardware.
func (h *hca) CreateSRQ(p mlx5.SRQParams) (uint32, error) {
	view, err := mlx5.NewRQView(p.Buf, p.Count, p.Stride)
	if err != nil || p.DBRec == nil || p.MaxSGE < 1 {
		return 0, ucs.ErrInvalidParam
	}
	q := &recvQueue{hca: h, pdn: p.PDN, uidx: p.UserIndex, view: view,
		maxSGE: p.MaxSGE, dbrec: mlx5.NewDBRec(p.DBRec)}
	h.mu.Lock()
	defer h.mu.Unlock()
	q.srqn, err = h.srqs.add(q)
	return q.srqn, err
}

// ArmSRQ implements mlx5.Hardware.
func (h *hca) ArmSRQ(srqn uint32, limit int) error {
	h.mu.Lock()
	q := h.srqs.get(srqn)
	h.mu.Unlock()
	if q == nil || limit < 0 || limit > int(q.view.Count()) {
		return ucs.ErrInvalidParam
	}
	q.mu.lock()
	hit := int(q.dbrec.Recv()-q.consumed) < limit
	q.limit = limit
	if hit {
		q.limit = 0
	}
	q.mu.release()
	if hit {
		h.raise(verbs.EventSRQLimitReached, srqn)
	}
	return nil
}

// DestroySRQ implements mlx5.Hardware.
func (h *hca) DestroySRQ(srqn uint32) error {
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
