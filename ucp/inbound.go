package ucp

import (
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// inbound is a message that has arrived in part. Fragments arrive in order; those of several
// messages of a peer may be interleaved.
type inbound struct {
	e     *EP
	msgs  *messages // of e, to which it is charged
	id    uint64    // the sender's id of the message
	total int
	got   int
	sink  sink
	next  *inbound // in messages.inbound, and in Worker.messages.freeInbound
}

// sink is the destination of a message that arrives in parts.
type sink interface {
	// write stores bytes of the message at an offset.
	write(off int, data []byte)
	// complete is called when the message is complete.
	complete(in *inbound)
	// fail is called when the rest will not arrive.
	fail(in *inbound, st ucs.Status)
}

// newInbound records a message whose first part has arrived. The whole message
// was charged.
func (w *Worker) newInbound(e *EP, id uint64, total int, s sink) *inbound {
	in := w.messages.freeInbound
	if in == nil {
		in = &inbound{}
	} else {
		w.messages.freeInbound = in.next
	}
	*in = inbound{e: e, msgs: e.msgs, id: id, total: total, sink: s}
	last := &e.msgs.inbound
	for *last != nil {
		last = &(*last).next
	}
	*last = in
	return in
}

// find returns the message with the peer's id, or nil.
func (m *messages) find(id uint64) *inbound {
	if m == nil {
		return nil
	}
	for in := m.inbound; in != nil; in = in.next {
		if in.id == id {
			return in
		}
	}
	return nil
}

// take passes the next part of the message to its sink. It returns false for a part that
// is not the next one, or exceeds the message.
func (in *inbound) take(off uint64, data []byte) bool {
	if off != uint64(in.got) || len(data) > in.total-in.got {
		return false
	}
	in.sink.write(in.got, data)
	if in.got += len(data); in.got == in.total {
		in.remove()
		in.sink.complete(in)
		in.free()
	}
	return true
}

// remove removes the message from the list of its peer.
func (in *inbound) remove() {
	for at := &in.msgs.inbound; *at != nil; at = &(*at).next {
		if *at == in {
			*at = in.next
			in.next = nil
			return
		}
	}
}

// drop drops a message whose parts are not valid.
func (in *inbound) drop(st ucs.Status) {
	in.remove()
	in.sink.fail(in, st)
	in.free()
}

// dropInbound drops all messages that have arrived in part.
func (m *messages) dropInbound(st ucs.Status) {
	for m != nil && m.inbound != nil {
		m.inbound.drop(st)
	}
}

func (in *inbound) free() {
	w := in.e.w
	*in = inbound{next: w.messages.freeInbound}
	w.messages.freeInbound = in
}

// handleFrag handles the next part of a message.
func (w *Worker) handleFrag(data []byte, _ uct.Desc) bool {
	var f wire.Frag
	part, ok := f.Unpack(data)
	if !ok {
		w.stats.badMessages.Inc()
		return false
	}
	e := w.sender(f.EP)
	if e == nil {
		return false
	}
	in := e.msgs.find(f.ID)
	if in == nil || !in.take(f.Offset, part) {
		w.stats.badMessages.Inc()
	}
	return false
}

// handleControl dispatches a control message.
func (w *Worker) handleControl(f func(w *Worker, c *wire.Control, e *EP) bool) uct.AMHandlerFunc {
	return func(data []byte, _ uct.Desc) bool {
		var c wire.Control
		if !c.Unpack(data) {
			w.stats.badMessages.Inc()
			return false
		}
		if e := w.connected(c.EP); e == nil || !f(w, &c, e) {
			w.stats.badMessages.Inc()
		}
		return false
	}
}

// handleAck completes a message that waits for its receiver.
func (w *Worker) handleAck(c *wire.Control, e *EP) bool {
	r := w.sent(e, c.ID)
	if r == nil {
		return false
	}
	w.pool.remote.Remove(r.remote)
	r.remote = 0
	st := c.Status()
	if st == ucs.StatusCanceled && !r.msg.acked && !r.msg.recalls {
		st = ucs.StatusOK // the peer has dropped the message, which is no failure for the sender
	}
	r.comp.Complete(st)
	return true
}

// sent returns the request of a message by the id that the peer received with it;
// nil if there is none.
func (w *Worker) sent(e *EP, id uint64) *Request {
	r := w.pool.remote.Find(id)
	if e == nil || r == nil || r.ep != e {
		return nil
	}
	if r.place() != placeAwaited || r.stage.fetches {
		if c := r.stage.class; c == nil || c.answered == nil || !c.answered(r) {
			return nil
		}
	}
	return r
}
