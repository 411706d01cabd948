package adapter

import (
	"errors"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/uverbs"
)

// eventChannel implements prm.EventChannel.
type eventChannel struct {
	*uverbs.Channel
	h *hardware
}

// NewChannel implements prm.EventHardware.
func (h *hardware) NewChannel() (prm.EventChannel, error) {
	ch, err := h.ctx.NewChannel()
	if err != nil {
		return nil, err
	}
	return eventChannel{Channel: ch, h: h}, nil
}

// TryRead implements prm.EventChannel. It drops events of destroyed CQs.
func (ch eventChannel) TryRead() (cqn uint32, ok bool) {
	for {
		id, ok := ch.Channel.TryRead()
		if !ok {
			return 0, false
		}
		ch.h.mu.Lock()
		o, known := ch.h.byID[id]
		ch.h.mu.Unlock()
		if known && o.kind == kindCQ {
			return o.number, true
		}
	}
}

// CreateCQ implements prm.Hardware.
func (h *hardware) CreateCQ(p prm.CQParams) (cqn uint32, err error) {
	if p.Vector >= int(h.ctx.CompVectors) {
		return 0, h.invalid("no completion vector %d of %d", p.Vector, h.ctx.CompVectors)
	}
	id := h.newID()
	depth, vector := p.Count-1, uint32(p.Vector) // the kernel rounds depth+1 up
	driver := createCQ{buf: address(p.Buf), record: uint64(p.DBRec.Addr()), cqeLen: prm.CQELen, flags: cqUARPageIndex, uarPage: uint16(p.UAR.Index)}
	if p.UAR.Index >= 1<<16 {
		return 0, h.invalid("a CQ in UAR page %d: the kernel takes indexes of 16 bits", p.UAR.Index)
	}
	var gotDepth uint32
	var reply numberReply
	attrs := []uverbs.Attr{
		uverbs.Object(uverbs.AttrHandle, 0),
		uverbs.In(uverbs.CQAttrDepth, &depth),
		uverbs.In(uverbs.CQAttrUser, &id),
		uverbs.In(uverbs.CQAttrVector, &vector),
		uverbs.Out(uverbs.CQAttrReplyDepth, &gotDepth),
		uverbs.Object(uverbs.CQAttrEvents, h.ctx.AsyncFD),
		uverbs.In(uverbs.AttrDriverIn, &driver),
		uverbs.Out(uverbs.AttrDriverOut, &reply),
	}
	if p.Channel != nil {
		attrs = append(attrs, uverbs.Object(uverbs.CQAttrChannel, uint32(p.Channel.FD())))
	}
	if err = h.ctx.Call(uverbs.MethodCreateCQ, attrs...); err != nil {
		return 0, err
	}
	q := named{handle: uint32(attrs[0].Value), id: id}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, taken := h.cqs[reply.Number]
	if err = h.checkNumber(uverbs.MethodCreateCQ, reply.Number, taken); err == nil && gotDepth+1 != p.Count {
		err = h.badReply(uverbs.MethodCreateCQ, "depth %d, want %d", gotDepth, depth)
	}
	if err != nil {
		return 0, errors.Join(err, h.destroyCQ(q))
	}
	h.cqs[reply.Number] = q
	h.byID[id] = object{kind: kindCQ, number: reply.Number}
	return reply.Number, nil
}

func (h *hardware) destroyCQ(q named) error {
	var reply uverbs.DestroyCQReply
	return h.ctx.Call(uverbs.MethodDestroyCQ, uverbs.Object(uverbs.AttrHandle, q.handle), uverbs.Out(uverbs.DestroyAttrReply, &reply))
}

// DestroyCQ implements prm.Hardware.
func (h *hardware) DestroyCQ(cqn uint32) error { return h.destroy(h.cqs, "CQ", cqn, h.destroyCQ) }

// destroy removes object n from a table and then destroys it with call, because the kernel may assign the number to a new
// object before call returns. After an error it adds the object to the table again.
func (h *hardware) destroy(table map[uint32]named, what string, n uint32, call func(named) error) error {
	h.mu.Lock()
	q, ok := table[n]
	o := h.byID[q.id]
	delete(table, n)
	delete(h.byID, q.id)
	h.mu.Unlock()
	if !ok {
		return h.invalid("no %s %#x", what, n)
	}
	err := call(q)
	if err != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		table[n], h.byID[q.id] = q, o
	}
	return err
}
