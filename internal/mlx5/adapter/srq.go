package adapter

import (
	"errors"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// CreateSRQ implements prm.Hardware.
func (h *hardware) CreateSRQ(p prm.SRQParams) (srqn uint32, err error) {
	return h.createSRQ(p, verbs.SRQTypeBasic)
}

// createSRQ creates an SRQ; attrs are the attributes of its type. The kernel computes the length of the queue from the
// depth and the number of SGEs, so createSRQ passes the number of SGEs for which the queue has space.
func (h *hardware) createSRQ(p prm.SRQParams, typ verbs.SRQType, attrs ...uverbs.Attr) (srqn uint32, err error) {
	pd, err := h.pd(p.PDN)
	if err != nil {
		return 0, err
	}
	id := h.newID()
	depth, sges, limit := p.Count-1, uint32(p.MaxSGE), uint32(0)
	driver := createSRQ{buf: address(p.Buf), record: uint64(p.DBRec.Addr()), userIndex: p.UserIndex}
	var gotDepth, gotSGEs uint32
	var reply numberReply
	attrs = append([]uverbs.Attr{
		uverbs.Object(uverbs.AttrHandle, 0),
		uverbs.Object(uverbs.SRQAttrPD, pd),
		uverbs.In(uverbs.SRQAttrUser, &id),
		uverbs.In(uverbs.SRQAttrMaxWR, &depth),
		uverbs.In(uverbs.SRQAttrMaxSGE, &sges),
		uverbs.In(uverbs.SRQAttrLimit, &limit),
		uverbs.Const(uverbs.SRQAttrType, uint64(typ)),
		uverbs.Object(uverbs.SRQAttrEvents, h.ctx.AsyncFD),
		uverbs.Out(uverbs.SRQAttrReplyMaxWR, &gotDepth),
		uverbs.Out(uverbs.SRQAttrReplyMaxSGE, &gotSGEs),
		uverbs.In(uverbs.AttrDriverIn, &driver),
		uverbs.Out(uverbs.AttrDriverOut, &reply),
	}, attrs...)
	if err = h.ctx.Call(uverbs.MethodCreateSRQ, attrs...); err != nil {
		return 0, err
	}
	q := named{handle: uint32(attrs[0].Value), id: id}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, taken := h.srqs[reply.Number]
	if err = h.checkNumber(uverbs.MethodCreateSRQ, reply.Number, taken); err == nil && (gotDepth+1 != p.Count || gotSGEs < sges) {
		err = h.badReply(uverbs.MethodCreateSRQ, "%d receives of %d SGEs, want %d of %d", gotDepth, gotSGEs, depth, sges)
	}
	if err != nil {
		return 0, errors.Join(err, h.destroySRQ(q))
	}
	h.srqs[reply.Number] = q
	h.byID[id] = object{kind: kindSRQ, number: reply.Number}
	return reply.Number, nil
}

// srqLimit is the bit IB_SRQ_LIMIT of enum ib_srq_attr_mask.
const srqLimit = 2

// ArmSRQ implements prm.Hardware.
func (h *hardware) ArmSRQ(srqn uint32, limit int) error {
	h.mu.Lock()
	q, ok := h.srqs[srqn]
	h.mu.Unlock()
	if !ok {
		return h.invalid("no SRQ %#x", srqn)
	}
	in := uverbs.ModifySRQ{SRQ: q.handle, Mask: srqLimit, Limit: uint32(limit)}
	return h.ctx.Invoke(uverbs.CmdModifySRQ, uverbs.BytesOf(&in), nil)
}

func (h *hardware) destroySRQ(q named) error {
	var reply uverbs.DestroyReply
	return h.ctx.Call(uverbs.MethodDestroySRQ, uverbs.Object(uverbs.AttrHandle, q.handle), uverbs.Out(uverbs.DestroyAttrReply, &reply))
}

// DestroySRQ implements prm.Hardware.
func (h *hardware) DestroySRQ(srqn uint32) error { return h.destroy(h.srqs, "SRQ", srqn, h.destroySRQ) }
