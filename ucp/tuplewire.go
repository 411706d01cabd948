package ucp

import (
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// tupleStage tells the peer something about a queue, in the order of messages.
var tupleStage = stage{
	name: "tuple", role: wireup.AM, inOrder: true, settled: (*Request).answered, post: (*Request).sendTuple,
	unsent: (*Request).moveUp,
}

// tellTuple tells the peer something about the queue of a tag.
func (e *EP) tellTuple(tag uint64, kind wire.TupleKind, number uint32, value uint64) {
	if e.state > epClosing {
		return
	}
	e.w.tuples.stats.messages.Inc()
	r := e.w.newRequest(e, &tupleStage)
	r.raddr, r.value, r.compare, r.expect = tag, value, uint64(number), uint64(kind)
	if kind != wire.TupleNext {
		r.answer()
	} else if r, _ = r.start(); r != nil { // no answer: there are as many as the user's messages
		r.Release()
	}
}

// moveUp tells a place one further to the front if it is not before that of the number-th
// message of the usual way, which was not sent.
func (r *Request) moveUp(number uint64) {
	if wire.TupleKind(r.expect) == wire.TupleNext && place(r.value).usual() >= number {
		r.value -= 1 << throughBits
	}
}

func (r *Request) sendTuple() error {
	w, l := r.worker, r.ep.link
	c := wire.Tuple{EP: l.conn.RemoteEP(), Tag: r.raddr, Value: r.value, Kind: wire.TupleKind(r.expect), Number: uint32(r.compare)}
	w.msg.b = c.Append(w.msg.b[:0])
	_, err := l.lanes.Use[wireup.AM].AM.AMBcopy(wire.AMTuple, &w.msg)
	return err
}

// handleTuple takes what a peer tells of a queue to what it is about.
func (w *Worker) handleTuple(data []byte, _ uct.Desc) bool {
	var c wire.Tuple
	if !c.Unpack(data) {
		w.stats.badMessages.Inc()
		return false
	}
	if e := w.connected(c.EP); e == nil || !w.tuples.take(e, &c) {
		w.stats.badMessages.Inc()
	}
	return false
}

// take handles what a peer tells. It reports false for what makes no sense.
func (x *tuples) take(e *EP, c *wire.Tuple) bool {
	l := e.messaging().tuple
	switch c.Kind {
	case wire.TupleOpen:
		x.openQueue(e, c.Tag)
	case wire.TupleNext:
		l.next = place(c.Value)
		return l.next.through() != 0
	case wire.TupleSwitch, wire.TupleStopped, wire.TupleResent:
		if c.Kind == wire.TupleResent { // the last one was canceled before it was sent again
			l.next = 0
		}
		t := x.in.find(c.Tag)
		if t != nil && t.m != e.msgs {
			return false
		}
		return t.take(c)
	default:
		return l.take(c)
	}
	return true
}
