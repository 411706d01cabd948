package dv

import (
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/mlx5/provider"
	"github.com/gucx/gucx/uct/ib/internal/buffer"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
	"github.com/gucx/gucx/uct/ib/internal/xrccore"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// xrcQueue is an XRC initiator or an XRC SRQ. Its completions are in the completion queue of the
// iface.
type xrcQueue interface {
	// parse converts an entry to a completion; false for an invalid opcode.
	parse(s *prm.CQESlot, t prm.Tail, wc *verbs.WC) bool
}

// xrcSend is the send queue of an XRC initiator.
type xrcSend struct {
	sendQueue
	index uint32
}

// xrcRecv is an XRC SRQ.
type xrcRecv struct {
	*prm.RecvList
	index uint32
}

var _ xrccore.Poster = (*rcIface)(nil)

// addXRC registers q for completions with a user index.
func (it *rcIface) addXRC(index uint32, q xrcQueue) {
	if n := int(index) + 1 - len(it.xrcQueues); n > 0 {
		it.xrcQueues = append(it.xrcQueues, make([]xrcQueue, n)...)
	}
	it.xrcQueues[index] = q
}

// removeXRC unregisters a closed queue and removes its completions.
func (it *rcIface) removeXRC(index uint32) {
	it.xrcQueues[index] = nil
	it.cq.removeIndex(index)
}

// handleXRC handles an entry of an xrcQueue; false if it belongs to none.
func (it *rcIface) handleXRC(s *prm.CQESlot, t prm.Tail) bool {
	index := s.UserIndex()
	if uint(index) >= uint(len(it.xrcQueues)) || it.xrcQueues[index] == nil {
		return false
	}
	wc := &it.xrcWC
	*wc = verbs.WC{}
	switch {
	case !it.xrcQueues[index].parse(s, t, wc):
	case it.filter == nil:
		it.HandleOther(wc)
	case it.filter.Filter(wc):
		it.HandleCompletion(wc)
	}
	return true
}

// parse implements xrcQueue.
func (q *xrcSend) parse(s *prm.CQESlot, t prm.Tail, wc *verbs.WC) bool {
	switch t.Opcode() {
	case prm.CQEReq:
	case prm.CQEReqErr:
		setError(s, wc)
	default:
		return false
	}
	wc.QPN, wc.ID = s.QPN(), *q.id(uint32(t.WQECounter()))
	return true
}

// parse implements xrcQueue.
func (q *xrcRecv) parse(s *prm.CQESlot, t prm.Tail, wc *verbs.WC) bool {
	return recvCompletion(q.RecvList, s, t, wc)
}

// OpenSend implements xrccore.Poster.
func (it *rcIface) OpenSend(qp *verbs.QP) (rccore.SendQueue, error) {
	raw, err := provider.RawQPOf(qp)
	if err != nil {
		return nil, err
	}
	q := &xrcSend{index: raw.UserIndex}
	if err := q.open(qp, raw, it.registerFor(raw.UAR)); err != nil {
		return nil, err
	}
	it.addXRC(q.index, q)
	return q, nil
}

// ResetSend implements xrccore.Poster.
func (it *rcIface) ResetSend(q rccore.SendQueue) {
	s := q.(*xrcSend)
	s.pi, s.batched = 0, 0
	it.cq.removeIndex(s.index)
}

// CloseSend implements xrccore.Poster.
func (it *rcIface) CloseSend(q rccore.SendQueue) {
	s := q.(*xrcSend)
	s.reg.removeQueue(&s.sendQueue)
	it.removeXRC(s.index)
}

// OpenRecv implements xrccore.Poster.
func (it *rcIface) OpenRecv(srq *verbs.SRQ) (buffer.RecvPoster, error) {
	list := new(prm.RecvList)
	index, err := openList(list, srq, false)
	if err != nil {
		return nil, err
	}
	q := &xrcRecv{list, index}
	it.addXRC(index, q)
	return q, nil
}

// CloseRecv implements xrccore.Poster.
func (it *rcIface) CloseRecv(q buffer.RecvPoster) { it.removeXRC(q.(*xrcRecv).index) }

// Filter implements xrccore.Poster.
func (it *rcIface) Filter(q rccore.CompQueue, f xrccore.Filter) rccore.CompQueue {
	it.filter = f
	return q
}
