package adapter

import (
	"errors"
	"sync/atomic"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// queuePair is a QP, or an XRC target that the context has opened one or more times.
type queuePair struct {
	id      uint64
	handles []uint32      // kernel's handles; calls use the last one; under hardware.mu
	state   atomic.Uint32 // verbs.QPState of the last ModifyQP
	failed  atomic.Bool   // an event reported that the device has moved the QP to ERR
}

// sigAll is IB_UVERBS_QP_CREATE_SQ_SIG_ALL of enum ib_uverbs_qp_create_flags.
const sigAll = 1 << 12

// CreateQP implements prm.Hardware.
func (h *hardware) CreateQP(p prm.QPParams) (qpn uint32, err error) {
	attrs, err := h.parentsOf(&p)
	if err != nil {
		return 0, err
	}
	driver := createQP{buf: address(p.SQ), record: uint64(p.DBRec.Addr()), sendBBs: p.SQCount, flags: qpUARPageIndex,
		userIndex: p.UserIndex, register: p.UAR.Index}
	if p.RQ != nil { // the receive ring is first in the buffer
		driver.buf, driver.recvCount, driver.recvStride = address(p.RQ), p.RQCount, uint32(p.RQStride)
	}
	limits := uverbs.QPCap{MaxSendWR: uint32(p.Cap.MaxSendWR), MaxRecvWR: uint32(p.Cap.MaxRecvWR), MaxSendSGE: uint32(p.Cap.MaxSendSGE),
		MaxRecvSGE: uint32(p.Cap.MaxRecvSGE), MaxInline: uint32(p.Cap.MaxInline)}
	if p.SigAll {
		attrs = append(attrs, flags(sigAll))
	}
	return h.createQP(p.Type, &limits, &driver, attrs)
}

// flags returns attribute QP_FLAGS.
func flags(bits uint32) uverbs.Attr { return uverbs.In(uverbs.QPAttrFlags, &bits) }

// parentsOf returns the attributes for the PD, CQs and SRQ of a QP.
func (h *hardware) parentsOf(p *prm.QPParams) (attrs []uverbs.Attr, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	pd, ok := h.pds[p.PDN]
	if !ok {
		return nil, h.invalid("no PD %#x", p.PDN)
	}
	send, ok := h.cqs[p.SendCQN]
	if !ok {
		return nil, h.invalid("no CQ %#x", p.SendCQN)
	}
	attrs = []uverbs.Attr{uverbs.Object(uverbs.QPAttrPD, pd), uverbs.Object(uverbs.QPAttrSendCQ, send.handle)}
	if p.Type != verbs.QPTypeXRCSend {
		recv, ok := h.cqs[p.RecvCQN]
		if !ok {
			return nil, h.invalid("no CQ %#x", p.RecvCQN)
		}
		attrs = append(attrs, uverbs.Object(uverbs.QPAttrRecvCQ, recv.handle))
	}
	if p.SRQN != 0 {
		srq, ok := h.srqs[p.SRQN]
		if !ok {
			return nil, h.invalid("no SRQ %#x", p.SRQN)
		}
		attrs = append(attrs, uverbs.Object(uverbs.QPAttrSRQ, srq.handle))
	}
	return attrs, nil
}

// createQP creates a QP in the kernel; attrs has its parents.
func (h *hardware) createQP(typ verbs.QPType, limits *uverbs.QPCap, driver *createQP, attrs []uverbs.Attr) (qpn uint32, err error) {
	q := &queuePair{id: h.newID()}
	var got uverbs.QPCap
	var reply createQPReply
	attrs = append([]uverbs.Attr{
		uverbs.Object(uverbs.AttrHandle, 0),
		uverbs.In(uverbs.QPAttrUser, &q.id),
		uverbs.In(uverbs.QPAttrCap, limits),
		uverbs.Const(uverbs.QPAttrType, uint64(typ)),
		uverbs.Object(uverbs.QPAttrEvents, h.ctx.AsyncFD),
		uverbs.Out(uverbs.QPAttrReplyCap, &got),
		uverbs.Out(uverbs.QPAttrReplyNumber, &qpn),
		uverbs.In(uverbs.AttrDriverIn, driver),
		uverbs.Out(uverbs.AttrDriverOut, &reply),
	}, attrs...)
	if err = h.ctx.Call(uverbs.MethodCreateQP, attrs...); err != nil {
		return 0, err
	}
	q.handles = []uint32{uint32(attrs[0].Value)}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, taken := h.qps[qpn]
	if err = h.checkNumber(uverbs.MethodCreateQP, qpn, taken); err != nil {
		return 0, errors.Join(err, h.destroyQP(q.handles[0]))
	}
	h.qps[qpn] = q
	h.byID[q.id] = object{kind: kindQP, number: qpn, qp: q}
	return qpn, nil
}

// qp returns a QP and a kernel's handle of it.
func (h *hardware) qp(qpn uint32) (q *queuePair, handle uint32, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	q, ok := h.qps[qpn]
	if !ok {
		return nil, 0, h.invalid("no QP %#x", qpn)
	}
	return q, q.handles[len(q.handles)-1], nil
}

// ModifyQP implements prm.Hardware.
func (h *hardware) ModifyQP(qpn uint32, a *verbs.QPAttr, mask verbs.QPAttrMask) error {
	q, handle, err := h.qp(qpn)
	if err != nil {
		return err
	}
	in := uverbs.ModifyQP{QP: handle, Mask: uint32(mask), QKey: a.QKey, RQPSN: a.RQPSN, SQPSN: a.SQPSN, DestQPN: a.DestQPN,
		AccessFlags: uint32(a.AccessFlags), PKeyIndex: a.PKeyIndex, State: uint8(a.State), CurState: uint8(a.CurState), PathMTU: uint8(a.PathMTU),
		MaxRDAtomic: a.MaxRDAtomic, MaxDestRD: a.MaxDestRD, MinRNRTimer: a.MinRNRTimer, Port: a.Port, Timeout: a.Timeout,
		RetryCnt: a.RetryCnt, RNRRetry: a.RNRRetry}
	if mask&verbs.QPMaskAV != 0 {
		in.Dest = uverbs.QPDest{DGID: a.AH.DGID, FlowLabel: a.AH.FlowLabel, DLID: a.AH.DLID, SGIDIndex: a.AH.SGIDIndex,
			HopLimit: a.AH.HopLimit, TrafficClass: a.AH.TrafficClass, SL: a.AH.SL, IsGlobal: flag(a.AH.Global), Port: a.AH.Port}
	}
	if err = h.ctx.Invoke(uverbs.CmdModifyQP, uverbs.BytesOf(&in), nil); err != nil {
		return err
	}
	if mask&verbs.QPMaskState != 0 {
		q.state.Store(uint32(a.State))
		if a.State == verbs.QPStateReset {
			q.failed.Store(false)
		}
	}
	return nil
}

// QueryQP implements prm.Hardware. In RTS and SQD it queries the firmware, because a failed work request moves the QP to
// ERR without an event. Other failures raise an event.
func (h *hardware) QueryQP(qpn uint32) (verbs.QPState, error) {
	q, handle, err := h.qp(qpn)
	if err != nil {
		return 0, err
	}
	switch s := verbs.QPState(q.state.Load()); {
	case s == verbs.QPStateReset:
		return s, nil
	case q.failed.Load():
		return verbs.QPStateErr, nil
	case s != verbs.QPStateRTS && s != verbs.QPStateSQD:
		return s, nil
	}
	in := uverbs.QueryQP{QP: handle, Mask: uint32(verbs.QPMaskState)}
	var out uverbs.QueryQPReply
	if err := h.ctx.Invoke(uverbs.CmdQueryQP, uverbs.BytesOf(&in), uverbs.BytesOf(&out)); err != nil {
		return 0, err
	}
	if out.State > uint8(verbs.QPStateErr) {
		return 0, h.badReply(uverbs.CmdQueryQP, "state %d", out.State)
	}
	return verbs.QPState(out.State), nil
}

func (h *hardware) destroyQP(handle uint32) error {
	var reply uverbs.DestroyReply
	return h.ctx.Call(uverbs.MethodDestroyQP, uverbs.Object(uverbs.AttrHandle, handle), uverbs.Out(uverbs.DestroyAttrReply, &reply))
}

// DestroyQP implements prm.Hardware. For a target that was opened several times it closes one handle.
func (h *hardware) DestroyQP(qpn uint32) error {
	h.mu.Lock()
	q, ok := h.qps[qpn]
	if !ok {
		h.mu.Unlock()
		return h.invalid("no QP %#x", qpn)
	}
	last := len(q.handles) - 1
	handle := q.handles[last]
	if q.handles = q.handles[:last]; last == 0 {
		delete(h.qps, qpn) // see destroy
		delete(h.byID, q.id)
	}
	h.mu.Unlock()
	err := h.destroyQP(handle)
	if err != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		q.handles = append(q.handles, handle)
		h.qps[qpn], h.byID[q.id] = q, object{kind: kindQP, number: qpn, qp: q}
	}
	return err
}
