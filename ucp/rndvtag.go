package ucp

import (
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// handleTagRTS handles the RTS of a tagged message: the receive that matches fetches the data. If none
// matches, the worker stores the RTS.
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
	if e == nil || !e.chargeSender(0) {
		return false
	}
	if !w.maySend(e.msgs, h.Word) {
		w.refuseTagged(e, 0)
		e.msgs.acknowledge(p.ID, ucs.StatusCanceled)
		return false
	}
	if found := w.tag.table.Arrive(h.Word); found != nil {
		e.msgs.received(0)
		a := announcedBy(e, &p)
		found.Owner.fetch(&a, h.Word)
		return false
	}
	w.storeAnnounced(e, h.Word, newAnnounced(e, &p))
	return false
}

// tagFetchStages are the stages of a receive that fetches a tagged message.
var tagFetchStages = newFetchStages("tag receive", &tagRecvClass, (*Request).tagFetched)

// fetch makes the receive fetch the data of a message.
func (v *tagRecv) fetch(a *announced, tag uint64) {
	v.setInfo(a.e, tag, a.n)
	r := v.req
	r.buf, r.mem = v.buf, v.mem
	if v.typed {
		v.typedData.fetch(r, a, tagFetchStages)
		return
	}
	a.fetch(r, tagFetchStages)
}

// tagFetched runs when a receive of a rendezvous message has completed.
func (r *Request) tagFetched() {
	v := r.recv
	if v.typed { // and the caller has not abandoned the receive
		v.typedData.fetched(r)
	}
	v.release()
}

// deliverAnnounced makes a receive fetch the data of the message.
func (u *TagMessage) deliverAnnounced(v *tagRecv) {
	a := u.rndv
	if st := a.lost(); st != ucs.StatusOK {
		v.req.ep = a.e
		v.req.complete(st)
		u.done(ucs.StatusCanceled)
		return
	}
	v.fetch(a, u.node.Tag)
	a.free()
	u.msgs.received(u.charge())
	u.free()
}

// lost returns the reason why the data cannot be fetched any more; StatusOK if it can.
func (a *announced) lost() ucs.Status {
	switch e := a.e; {
	case a.id == 0:
		return ucs.StatusCanceled
	case e.failed.err != nil:
		return e.failed.cause
	case !e.receives():
		return ucs.StatusCanceled
	case e.msgs != a.msgs: // it has started over
		return ucs.StatusPeerClosed
	}
	return ucs.StatusOK
}
