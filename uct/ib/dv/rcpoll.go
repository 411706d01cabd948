package dv

import (
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/race"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Progress implements uct.Iface.
func (it *rcIface) Progress() int {
	c := &it.cq
	if race.Enabled {
		if !c.guard.EnterPoll(c.cqn) {
			return 0
		}
		defer c.guard.Leave()
	}
	if c.Idle() && it.Attn.Load() == 0 {
		return 0
	}
	c.Drive()
	n := 0
	for n < it.maxPoll {
		s, t := c.Peek()
		if !c.Sent(t) {
			if !c.Owned(t) {
				c.Wait(s, t)
				return it.endPoll(n)
			}
			c.Take()
			n++
			it.handleOther(s, t)
			continue
		}
		c.Take()
		n++
		e := it.recent[s.QPNLow()]
		if e.QPN != s.QPN() {
			it.handleOther(s, t)
			continue
		}
		id := *e.sq.id(uint32(t.WQECounter()))
		e.CI = id
		if id >= e.NextOp {
			e.Retire()
		}
	}
	c.LookAgain()
	return it.endPoll(n)
}

// endPoll ends a Progress that has handled n entries.
func (it *rcIface) endPoll(n int) int {
	if n != 0 {
		it.cq.Give()
		if it.Attn.Load() == 0 {
			return n
		}
	} else if it.cq.overrun.Load() {
		it.cq.LookAgain()
		n = -1
	}
	return it.dispatch(n)
}

// dispatch does the work that is batched at the end of a Progress: it sends credits and dispatches
// pending requests, with one doorbell for each EP.
func (it *rcIface) dispatch(n int) int {
	if it.reg == nil { // no EP yet
		return it.FinishProgress(n)
	}
	it.reg.beginBatch()
	n = it.FinishProgress(n)
	it.reg.endBatch()
	return n
}

// handleOther handles all entries except successful sends of recent EPs.
func (it *rcIface) handleOther(s *prm.CQESlot, t prm.Tail) {
	if it.xrcQueues != nil && it.handleXRC(s, t) {
		return
	}
	if t.Opcode() == prm.CQEReq {
		if e := it.find(s.QPN()); e != nil {
			e.CI = *e.sq.id(uint32(t.WQECounter()))
			if e.CI >= e.NextOp {
				e.Retire()
			}
		}
		return
	}
	var wc verbs.WC
	var ok bool
	if t.Opcode() == prm.CQEReqErr {
		ok = it.sendError(s, t, &wc)
	} else {
		ok = recvCompletion(&it.srq, s, t, &wc)
	}
	if ok {
		it.HandleOther(&wc)
	}
}

// sendError converts the entry of a failed send to a completion; false for a destroyed QP.
func (it *rcIface) sendError(s *prm.CQESlot, t prm.Tail, wc *verbs.WC) bool {
	e := it.find(s.QPN())
	if e == nil {
		return false
	}
	wc.QPN, wc.ID = e.QPN, *e.sq.id(uint32(t.WQECounter()))
	setError(s, wc)
	return true
}

// recvCompletion converts an entry of a receive to a completion, and frees its receive entry; false
// for an invalid opcode.
func recvCompletion(q *prm.RecvList, s *prm.CQESlot, t prm.Tail, wc *verbs.WC) bool {
	wc.QPN = s.QPN()
	switch t.Opcode() {
	case prm.CQERespSendImm:
		wc.ID, wc.ByteLen = q.Take(t.WQECounter()), s.ByteCount()
		wc.Imm, wc.Flags = s.Imm(), verbs.WCWithImm
	case prm.CQERespWrImm:
		wc.ID, wc.ByteLen = q.Take(t.WQECounter()), s.ByteCount()
		wc.Opcode, wc.Imm, wc.Flags = verbs.WCRecvRDMAWithImm, s.Imm(), verbs.WCWithImm
	case prm.CQERespSend: // without immediate, which is the header of a message
		wc.ID, wc.ByteLen = q.Take(t.WQECounter()), s.ByteCount()
	case prm.CQERespErr:
		wc.ID = q.Take(t.WQECounter())
		setError(s, wc)
	default:
		return false
	}
	return true
}

// find returns the EP of a QPN, or nil, and adds it to the recent EPs.
func (it *rcIface) find(qpn uint32) *rcEP {
	slot := &it.recent[uint8(qpn)]
	if (*slot).QPN == qpn {
		return *slot
	}
	e := rcEPOf(it.Find(qpn))
	if e != nil {
		*slot = e
	}
	return e
}
