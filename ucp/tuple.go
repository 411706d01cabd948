package ucp

import (
	"fmt"
	"slices"

	"github.com/gucx/gucx/ucp/internal/match"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/stats"
	"github.com/gucx/gucx/uct"
)

// Tuples: messages of one tag from one peer that go through a receive queue of the
// transport (uct.Queue), from the sender's buffer into that of the receive, without a copy
// and without a message beside the data. docs/design/0007 says how a queue comes and goes
// and why the order stays; docs/wire.md which messages do it.
//
// What a queue has taken is hidden from the table of receives, so both must never compete
// for a message. Before a receive could be posted that does, the queues that it could
// compete with are closed, and until that is done the worker is paused: receives wait in
// order, messages are kept in order, and then one finds the other as if all had come at
// once.

// tuples are what a worker has for that; Worker.tuples is nil where it is off.
type tuples struct {
	w    *Worker
	cfg  tupleConfig
	sink *Mem // takes what is beyond the buffers of receives; nil until there is a queue

	in      tupleTable[*inTuple] // one sender at a time has a queue for a tag
	closing int                  // of these, those that are being closed
	ended   []*inTuple           // that may be closed now
	clock   uint64               // of the use of tuples

	paused    bool
	held      []*tagRecv // receives that wait while it is paused, in order
	order     uint64     // of the latest receive
	unstopped []*inTuple // that are looked at when the alarm goes off

	idle  *tupleSend // records for the next sends
	slots [][]byte   // free pieces of copies, for messages that are copied
	chunk []*Mem     // what slots are pieces of
	stats tupleStats
}

// tupleStats counts what happens to tuples.
type tupleStats struct {
	sends, receives     stats.Counter // messages that went through queues
	copies              stats.Counter // of these, those that the sender copied
	messages            stats.Counter // that were sent beside the data
	opened, resent      stats.Counter
	wildcards, probes   stats.Counter // queues closed for a receive with a mask, or one that no queue takes; for a probe
	others, canceled    stats.Counter // for a message from another peer; for a receive that was canceled
	evicted, busy, long stats.Counter // for another tuple; as no connection was free; for a message that no queue takes
	refused             stats.Counter // requests for a queue
}

func (s *tupleStats) add(root *stats.Node) {
	n := root.Child("tupleq")
	for _, c := range []struct {
		name string
		c    *stats.Counter
	}{
		{"sends", &s.sends}, {"receives", &s.receives}, {"copies", &s.copies}, {"messages", &s.messages},
		{"opened", &s.opened}, {"resent", &s.resent}, {"closed_wildcard", &s.wildcards}, {"closed_probe", &s.probes},
		{"closed_other", &s.others}, {"closed_cancel", &s.canceled}, {"closed_evicted", &s.evicted},
		{"closed_busy", &s.busy}, {"closed_long", &s.long}, {"refused", &s.refused},
	} {
		n.Add(c.name, c.c)
	}
}

// newTuples is nil if the configuration has them off.
func newTuples(w *Worker) *tuples {
	cfg := w.ctx.cfg.tuples()
	if !cfg.on {
		return nil
	}
	x := &tuples{w: w, cfg: cfg}
	x.stats.add(w.stats.root)
	return x
}

// close gives back what the worker has besides queues, which its ifaces have closed.
func (x *tuples) close() error {
	if x == nil {
		return nil
	}
	var errs []error
	if x.sink != nil {
		errs = append(errs, x.sink.Close())
	}
	for _, m := range x.chunk {
		errs = append(errs, m.Close())
	}
	return ucs.Join(errs...)
}

// tick is the time for what was used last.
func (x *tuples) tick() uint64 {
	x.clock++
	return x.clock
}

// exactMask is the mask of a receive that a queue may take.
const exactMask = ^uint64(0)

// queueable reports that a receive is one for a queue.
func (v *tagRecv) queueable() bool { return v.node.Mask == exactMask && !v.typed }

// errNoWildcards refuses what Config.TupleqNoWildcards promises not to use.
var errNoWildcards = fmt.Errorf("%w: a mask that is not full, but TUPLEQ_NO_WILDCARDS=y", ucs.ErrInvalidParam)

// receiveInto is TagRecv where tuples are on.
func (x *tuples) receiveInto(buf []byte, tag, mask uint64, info *TagInfo, p *OpParams) (*Request, error) {
	if mask != exactMask && !x.cfg.wildcards {
		return nil, recvError(len(buf), errNoWildcards)
	}
	return x.receive(x.w.newTagRecv(buf, info, p).recv, tag, mask)
}

// receive posts a receive. The request is the caller's.
func (x *tuples) receive(v *tagRecv, tag, mask uint64) (*Request, error) {
	v.node.Tag, v.node.Mask = tag, mask
	x.order++
	v.order = x.order
	x.admit(v)
	if v.req.Done() { // the caller sees the end; the next user of the request has another
		v.req.onDone = nil
	}
	return v.req.started()
}

// admit gives a receive the message that it fits, or posts it where one will come.
func (x *tuples) admit(v *tagRecv) {
	tag, mask := v.node.Tag, v.node.Mask
	if !x.paused && !v.queueable() {
		x.closeFor(tag, mask, &x.stats.wildcards)
	}
	if x.paused {
		x.hold(v)
		if x.w.tags.Peek(tag, mask) != nil {
			x.handCertain()
		}
		return
	}
	if m := x.w.tags.Take(tag, mask); m != nil {
		m.Owner.taken().hand(v)
		return
	}
	if t := x.in.find(tag); t != nil && t.state == inOpen && v.queueable() {
		if t.post(v) {
			return
		}
		t.stop(&x.stats.wildcards)
		x.hold(v)
		return
	}
	v.req.stage = &tagRecvStage
	x.w.tags.Expect(&v.node)
}

// closeFor closes the queues that compete for messages of that tag and mask, and counts
// them.
func (x *tuples) closeFor(tag, mask uint64, why *stats.Counter) {
	if mask == exactMask {
		if t := x.in.find(tag); t != nil && t.state == inOpen {
			t.stop(why)
		}
		return
	}
	if x.in.n == 0 {
		return
	}
	var found []*inTuple
	x.in.all(func(t uint64, in *inTuple) bool {
		if (t^tag)&mask == 0 && in.state == inOpen {
			found = append(found, in)
		}
		return true
	})
	for _, t := range found {
		t.stop(why)
	}
}

// cancelAll ends the receives when the worker closes. Those of queues have ended with the
// EPs, or do when the ifaces close.
func (x *tuples) cancelAll() {
	for len(x.held) > 0 {
		x.held[0].req.Cancel()
	}
}

// counted is a handler of tagged messages that go the usual way, which the place of those
// that are sent again is told by.
func (w *Worker) counted(h uct.AMHandler) uct.AMHandler {
	if w.tuples == nil {
		return h
	}
	handle := h.HandleAM
	return uct.AMHandlerFunc(func(data []byte, desc uct.Desc) bool {
		var h wire.Head
		e := (*EP)(nil)
		if _, ok := h.Unpack(data); ok {
			e = w.eps.Find(h.EP)
		}
		if e == nil || e.state != epOpen || e.link == nil {
			return handle(data, desc)
		}
		m := e.messaging()
		if t := w.tuples.in.find(h.Word); t != nil && t.m != m && t.state == inOpen {
			t.stop(&w.tuples.stats.others)
		}
		last := m.kept.last
		keep := handle(data, desc)
		if u := m.tuple.arrived(last); u != nil && w.tuples.handIfCertain(u) {
			w.tuples.handCertain()
		}
		return keep
	})
}

// place is that of a message among all tagged messages of an EP: how many went the usual way
// until then, with this one, and in the lower bits the number of this one of those that
// went through queues; 0 if it did not.
type place uint64

// throughBits is how long numbers of messages through queues are. They wrap: so many are
// never under way.
const throughBits = 24

func newPlace(usual uint64, through uint32) place { return place(usual<<throughBits | uint64(through)) }

func (p place) usual() uint64   { return uint64(p >> throughBits) }
func (p place) through() uint32 { return uint32(p & (1<<throughBits - 1)) }

// after reports that p was sent after q.
func (p place) after(q place) bool {
	if p.usual() != q.usual() || p.through() == 0 || q.through() == 0 {
		return p > q
	}
	return int32((p.through()-q.through())<<(32-throughBits)) > 0
}

// arrived gives a message that was kept its place among those of its sender, and returns it;
// nil if it was not kept. last is the one that was kept before.
func (l *tupleLink) arrived(last *TagMessage) *TagMessage {
	at := l.next
	l.next = 0
	if at == 0 {
		l.usualIn++
		at = newPlace(l.usualIn, 0)
	}
	u := l.m.kept.last
	if u == nil || u == last {
		return nil
	}
	u.place = at
	first := u
	for first.prev != nil && first.prev.place.after(at) {
		first = first.prev
	}
	for x := first; x != u; {
		next := x.next
		l.x.w.tags.Remove(&x.node)
		l.m.kept.remove(x)
		l.x.w.tags.Keep(&x.node)
		l.m.kept.add(x)
		x = next
	}
	return u
}

// fitsAny reports that a receive which no queue takes waits for messages of a tag.
func (x *tuples) fitsAny(tag uint64) bool {
	if !x.cfg.wildcards {
		return false
	}
	fits := func(n *match.Recv[*tagRecv]) bool { return (n.Tag^tag)&n.Mask == 0 && !n.Owner.queueable() }
	for n := range x.w.tags.Receives() {
		if fits(n) {
			return true
		}
	}
	return slices.ContainsFunc(x.held, func(v *tagRecv) bool { return fits(&v.node) })
}
