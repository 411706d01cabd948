package ucp

import (
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// handleTagRTS takes a tagged message, whose data is still with its sender, to the receive
// that it fits, or keeps the announcement.
func (w *Worker) handleTagRTS(data []byte, _ uct.Desc) bool {
	var h wire.Head
	var p wire.RTS
	rest, ok := h.Unpack(data)
	if ok {
		rest, ok = p.Unpack(rest)
	}
	if !ok || len(rest) != 0 || p.ID == 0 || p.Length > maxMessage {
		w.stats.badMessages.Inc()
		return false
	}
	e := w.sender(h.EP)
	if e == nil || !e.arrived(0) {
		return false
	}
	a := newAnnounced(e, &p)
	if found := w.tags.Arrive(h.Word); found != nil {
		e.msgs.received(0)
		found.Owner.fetch(a, h.Word)
		return false
	}
	w.keepAnnounced(e, h.Word, a)
	return false
}

var tagFetchStages = newFetchStages("tag receive")

// fetch has the receive get the data of a message.
func (v *tagRecv) fetch(a *announced, tag uint64) {
	v.tell(a.e, tag, a.n)
	r := v.req
	r.buf, r.mem = v.buf, v.mem
	v.release()
	a.fetch(r, &tagFetchStages)
}

// recvAnnounced is recv for a message whose data is still with its sender.
func (u *TagMessage) recvAnnounced(buf []byte, info *TagInfo, p *OpParams) (*Request, error) {
	if err := u.rndv.gone(action{stage: &tagRecvStage, n: len(buf)}); err != nil {
		u.done(ucs.StatusCanceled)
		return nil, err
	}
	r := u.w.newTagRecv(buf, info, p)
	r.recv.fetch(u.rndv, u.node.Tag)
	u.msgs.received(u.charge())
	u.free()
	return r.started()
}
