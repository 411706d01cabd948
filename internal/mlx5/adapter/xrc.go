package adapter

import (
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// OpenXRCD implements prm.XRCHardware. The number of a domain is the kernel's handle.
func (h *hardware) OpenXRCD(attr verbs.XRCDInitAttr) (xrcdn uint32, err error) {
	in := uverbs.OpenXRCD{FD: int32(attr.FD), OFlags: uint32(attr.Flags)}
	var out uverbs.HandleReply
	if err = h.ctx.Invoke(uverbs.CmdOpenXRCD, uverbs.BytesOf(&in), uverbs.BytesOf(&out)); err != nil {
		return 0, err
	}
	return out.Handle, nil
}

// CloseXRCD implements prm.XRCHardware.
func (h *hardware) CloseXRCD(xrcdn uint32) error {
	return h.ctx.Call(uverbs.MethodCloseXRCD, uverbs.Object(uverbs.AttrHandle, xrcdn))
}

// CreateXRCSRQ implements prm.XRCHardware. An SRQ of the adapter has only one number, so handle and srqn are equal.
func (h *hardware) CreateXRCSRQ(p prm.SRQParams) (handle, srqn uint32, err error) {
	h.mu.Lock()
	cq, ok := h.cqs[p.CQN]
	h.mu.Unlock()
	if !ok {
		return 0, 0, h.invalid("no CQ %#x", p.CQN)
	}
	var number uint32
	srqn, err = h.createSRQ(p, verbs.SRQTypeXRC, uverbs.Object(uverbs.SRQAttrXRCD, p.XRCDN), uverbs.Object(uverbs.SRQAttrCQ, cq.handle),
		uverbs.Out(uverbs.SRQAttrReplyNumber, &number))
	return srqn, srqn, err
}

// CreateTarget implements prm.XRCHardware. A target has no queue, no doorbell record and no register.
func (h *hardware) CreateTarget(xrcdn uint32) (handle, qpn uint32, err error) {
	driver := createQP{flags: qpUARPageIndex}
	qpn, err = h.createQP(verbs.QPTypeXRCRecv, &uverbs.QPCap{}, &driver, []uverbs.Attr{uverbs.Object(uverbs.QPAttrXRCD, xrcdn)})
	return qpn, qpn, err
}

// OpenTarget implements prm.XRCHardware. The kernel returns a new handle each time that a target is opened.
func (h *hardware) OpenTarget(xrcdn, qpn uint32) (handle uint32, err error) {
	q := &queuePair{id: h.newID()}
	in := uverbs.OpenQP{UserHandle: q.id, XRCD: xrcdn, QPN: qpn, Type: uint8(verbs.QPTypeXRCRecv)}
	var out uverbs.OpenQPReply
	if err = h.ctx.Invoke(uverbs.CmdOpenQP, uverbs.BytesOf(&in), uverbs.BytesOf(&out)); err != nil {
		return 0, err
	}
	q.state.Store(uint32(verbs.QPStateRTS)) // another context may have moved it to any state
	h.mu.Lock()
	defer h.mu.Unlock()
	if known, ok := h.qps[qpn]; ok {
		known.handles = append(known.handles, out.QP)
		return qpn, nil
	}
	q.handles = []uint32{out.QP}
	h.qps[qpn] = q
	h.byID[q.id] = object{kind: kindQP, number: qpn, qp: q}
	return qpn, nil
}
