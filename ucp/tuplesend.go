package ucp

import (
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/ucp/internal/tuple"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// tupleSend is a message that is sent through a queue.
type tupleSend struct {
	tuple.Send
	x    *tuples
	m    *messages
	r    *Request
	iov  [1]uct.IOV
	reg  *cachedReg // registration of the buffer; nil if the caller has registered it
	slot []byte     // copy of the message, from tuples.slots; nil if it is not copied
	next *tupleSend
}

// tupleSendStage is the stage of a message through a queue. If the caller abandons the message and no receive has it
// yet, the queue returns it.
var tupleSendStage = stage{
	class: &messageClass, name: "tag send", sized: true, role: noRole, usesBuffer: true, tryCancel: func(r *Request) bool {
		r.msg.recalls = true
		r.ep.msgs.tuple.out.Cancel(r.msg.word)
		return r.flags&reqDone != 0 // false if the queue has not returned it yet
	},
}

// send implements tagMatcher.
func (x *tuples) send(e *EP, tag uint64, buf []byte, p *OpParams, sync bool) (*Request, error) {
	if m := e.msgs; m != nil && !sync && e.state == epOpen {
		l := m.tuple
		if t := l.out.Find(tag); t.Usual() && l.inOneCall(tag, buf, p) {
			l.out.Sent(l.out.NextUsual())
			l.out.WentUsual(t, tag)
			return nil, nil
		}
	}
	r, err := e.newSend(tagChannel, tag, buf, p)
	if err != nil {
		return nil, err
	}
	r.msg.acked = sync
	return x.start(r)
}

// inOneCall sends a message outside of queues if one call can send it now.
func (l *tupleLink) inOneCall(tag uint64, buf []byte, p *OpParams) bool {
	switch w := l.x.w; {
	case len(buf) <= l.m.mayShort && l.m.short(wire.AMTag, tag, buf) == nil:
		return true
	case (p == nil || p.Mem == nil) && len(buf) <= l.m.mayCopy:
		return l.m.copied(w, wire.AMTag, tag, nil, buf) == nil
	}
	return false
}

// start implements tagMatcher.
func (x *tuples) start(r *Request) (*Request, error) {
	l, tag := r.ep.msgs.tuple, r.msg.word
	t := l.out.Find(tag)
	if !t.Usual() {
		return x.through(t, r)
	}
	r.msg.place = l.out.NextUsual()
	r, err := r.start()
	if err == nil {
		l.out.WentUsual(t, tag)
	}
	return r, err
}

// admitted implements tagMatcher.
func (x *tuples) admitted(r *Request) { r.ep.msgs.tuple.out.Sent(r.msg.place) }

// through sends a message through a queue. It needs no credit, but withholds that of an RTS: if other messages are sent later and
// the queue closes, the message must arrive again before the receiver matches those.
func (x *tuples) through(t *tuple.Out, r *Request) (*Request, error) {
	s := x.idle
	if s == nil {
		s = x.growSends()
	}
	x.idle, s.next, s.r, s.m = s.next, nil, r, r.ep.msgs
	if s.m.tuple.Covers() {
		s.m.tuple.out.Cover()
	}
	s.m.Withhold(charge(0))
	r.stage = &tupleSendStage
	r.flags |= reqPosted
	r.awaitPeer()
	r.moveTo(placeDelegated)
	r.posted()
	t.Send(&s.Send)
	if s.slot != nil && !r.msg.acked { // it was copied: the caller may reuse its buffer
		r.onDone = nil
		r.Release()
		return nil, nil
	}
	return r.started()
}

// growSends adds a record to the pool.
//
//go:noinline
func (x *tuples) growSends() *tupleSend {
	s := &tupleSend{x: x}
	s.Init(s)
	return s
}

// Pieces implements tuple.Request.
func (s *tupleSend) Pieces(most int) ([]uct.IOV, bool) {
	r, x := s.r, s.x
	i, n := r.ep.lane(wireup.AM).Iface, len(r.buf)
	d := i.domain
	switch {
	case r.data() != nil || n > most:
		return nil, false
	case n == 0:
		return nil, true
	case x.copies && n <= copySlotLen && s.copy(d.Index):
		return s.iov[:], true
	}
	s.iov[0].Buf = r.buf
	switch {
	case r.mem != nil && r.mem.In(d) != nil:
		s.iov[0].Mem = r.mem.In(d)
	case d.Attr.NeedMemH:
		if !i.canRegister(n) {
			return nil, false
		}
		reg, err := x.w.registerCached(d, r.buf, 0)
		if err != nil {
			return nil, false
		}
		s.reg, s.iov[0].Mem = reg, reg.Mem.In(d)
	}
	return s.iov[:], s.iov[0].Mem != nil || !d.Attr.NeedMemH
}

// GivenUp implements tuple.Request.
func (s *tupleSend) GivenUp() bool { return s.r.flags&reqGivenUp != 0 || s.r.msg.recalls }

// End implements tuple.Request.
func (s *tupleSend) End(st ucs.Status) {
	r, m := s.r, s.m
	s.release()
	m.Withhold(-charge(0))
	m.tuple.creditReleased()
	r.moveTo(placeAwaited)
	r.comp.Complete(st)
}

// tupleAgainStage sends the RTS of a message of a closed queue, behind its place. It uses the credit that the message has
// withheld.
var tupleAgainStage = stage{
	class: &tagClass, name: "tag send", sized: true, role: wireup.AM, usesBuffer: true, announces: true, unfenced: true,
	tryCancel: unposted, post: (*Request).sendAgain,
}

// Again implements tuple.Request.
func (s *tupleSend) Again() {
	m := s.m
	r := s.takeBack()
	r.stage, r.msg.charged = &tupleAgainStage, charge(0)
	m.Credit -= r.msg.charged
	m.e.list(r)
	m.e.answeredAll()
	r.launch()
}

func (r *Request) sendAgain() error {
	err := r.sendRTS()
	if err == nil {
		r.stage = &tagChannel.announce
	}
	return err
}

// FirstWaiting implements tuple.Target.
func (l *tupleLink) FirstWaiting() tuple.SendPlace {
	for r := range l.m.e.ops.all {
		if r.flags&reqWaiting != 0 && r.msg != nil && !r.msg.place.IsZero() {
			return r.msg.place
		}
	}
	return tuple.NoPlace
}

// Covers implements tuple.Target.
func (l *tupleLink) Covers() bool { return l.m.Credit >= 0 }

// Requeue implements tuple.Request.
func (s *tupleSend) Requeue(at tuple.SendPlace) {
	l := s.m.tuple
	r := s.takeBack()
	r.stage, r.msg.place = &tagChannel.send, at
	l.requeued = append(l.requeued, r)
}

// Requeued implements tuple.Target. It inserts the messages at their places among those that wait.
func (l *tupleLink) Requeued() {
	e, list := l.m.e, l.requeued
	l.requeued = nil
	if e.waiting.Empty() {
		for _, r := range list {
			e.list(r)
			r.launch()
		}
	} else {
		at := e.ops.first
		for _, r := range list {
			at = e.firstBehind(at, r.msg.place)
			e.insertWaiting(r, at)
		}
		l.m.tag.queue.renumber()
	}
	e.useCredit() // that the messages have withheld
	e.answeredAll()
}

// firstBehind returns the first request from r on that waits and is behind all messages that wait and precede a place; nil if
// there is none.
func (e *EP) firstBehind(r *Request, at tuple.SendPlace) (first *Request) {
	for ; r != nil; r = r.next {
		if r.flags&reqWaiting == 0 {
			continue
		}
		tagged := r.msg != nil && !r.msg.place.IsZero()
		if tagged && at.After(r.msg.place) {
			first = nil
			continue
		}
		if first == nil {
			first = r
		}
		if tagged {
			return first
		}
	}
	return first
}

// takeBack returns a message of a closed queue, and its record to the pool.
func (s *tupleSend) takeBack() *Request {
	r, m := s.r, s.m
	if s.slot != nil {
		r.buf = append([]byte(nil), r.buf...)
	}
	s.release()
	m.Withhold(-charge(0))
	r.flags &^= reqPosted | reqZcopy | reqPlace
	m.e.awaited.remove(r)
	return r
}

// creditReleased makes the next Progress send messages that wait for the credit of a message in a queue, or of one that was
// canceled.
func (l *tupleLink) creditReleased() {
	if e := l.m.e; e.state <= epClosing && l.m.blocks(nil) {
		l.released = true
		e.w.schedule(e)
	}
}

// useReleased sends messages that have waited for that credit. m may be nil.
func (m *messages) useReleased() {
	if m == nil || m.tuple == nil || !m.tuple.released {
		return
	}
	m.tuple.released = false
	if e := m.e; e.state <= epClosing && e.closing.aborting == ucs.StatusOK {
		e.useCredit()
	}
}

// release returns the record to the pool.
func (s *tupleSend) release() {
	x := s.x
	if s.reg != nil {
		s.reg.release()
	}
	if s.slot != nil {
		x.slots = append(x.slots, s.slot)
	}
	s.r, s.m, s.reg, s.slot, s.iov[0] = nil, nil, nil, nil, uct.IOV{}
	s.next, x.idle = x.idle, s
}

// copySlotLen is the maximum length of a message that tupleq_copy copies at the sender, in bytes. It is the eager
// limit of the paper: up to there the copy costs less than the caller gains by it.
const copySlotLen = 8 << 10

const (
	copyChunkSlots = 16 // slots that are allocated at once
	maxCopyChunks  = 64 // maximum for a worker: 8 MiB
)

// copy copies the message and sends the copy. It returns false if there is no memory
// for the copy.
func (s *tupleSend) copy(domain int) bool {
	x := s.x
	if len(x.slots) == 0 && !x.growSlots() {
		return false
	}
	slot := x.slots[len(x.slots)-1]
	mem := x.memOf(slot)
	d := x.w.ctx.memory.Domains[domain]
	if mem.In(d) == nil && d.Attr.NeedMemH {
		return false
	}
	x.slots = x.slots[:len(x.slots)-1]
	s.slot = slot
	s.r.buf, s.r.mem = slot[:copy(slot, s.r.buf)], nil
	s.iov[0] = uct.IOV{Buf: s.r.buf, Mem: mem.In(d)}
	x.stats.Copies.Inc()
	return true
}

// memOf returns the registered memory of which a slot is a part.
func (x *tuples) memOf(slot []byte) *region.Mem {
	for _, m := range x.chunk {
		if m.Covers(slot) {
			return m
		}
	}
	return nil
}

// growSlots allocates and registers more slots.
func (x *tuples) growSlots() bool {
	if len(x.chunk) == maxCopyChunks {
		return false
	}
	mem, err := x.w.ctx.memory.Alloc(copyChunkSlots*copySlotLen, uct.AccessLocalWrite)
	if err != nil {
		return false
	}
	x.chunk = append(x.chunk, mem)
	for b := mem.Bytes(); len(b) >= copySlotLen; b = b[copySlotLen:] {
		x.slots = append(x.slots, b[:copySlotLen:copySlotLen])
	}
	return true
}
