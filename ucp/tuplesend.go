package ucp

import (
	"math"

	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/stats"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// tupleLink is what the messages of an EP have for tuples.
type tupleLink struct {
	x *tuples
	m *messages

	// As sender. While tuples are on, messages.maxShort and maxCopy say that no message goes
	// in one call; these are what they would be.
	short, copy int
	out         tupleTable[*outTuple]
	open        int    // of these, those that are open or are to be
	usual       uint64 // tagged messages that went the usual way
	through     uint32 // number of the latest one that went through a queue; never 0
	queues      uct.QueueSender
	dead        ucs.Status // why nothing goes on any more

	// As receiver.
	usualIn uint64 // tagged messages that came the usual way
	next    place  // of the next one, if that is sent again; 0 if it is not
	in      []*inTuple
}

// outTuple is the messages of one tag to a peer.
//
//	usual -- enough of them --> asked -- OPENED --> open -- close --> closing -- CLOSED --> usual
type outTuple struct {
	l   *tupleLink
	tag uint64

	state  outState
	count  int // messages that went the usual way since the queue was closed, or there was none
	askAt  int // count from which a queue is wanted
	closes int // how often it was closed for a reason that may come again
	used   uint64

	number uint32
	max    int           // longest message for the queue, in bytes
	conn   uct.QueueConn // nil: it has none
	busy   int           // sends that the connection has
	recall uct.Completion
	told   bool   // the receiver knows what was sent: nothing is under way any more
	sent   uint64 // messages that were given to a connection
	acked  uint64 // of these, those that were received

	first, last *tupleSend // that were not received, in order
	unsent      *tupleSend // the first of these that no connection was given
}

// outState is how far an outTuple has come.
type outState uint8

const (
	outUsual   outState = iota // messages go the usual way
	outAsked                   // a queue is wanted
	outOpen                    // messages go through the queue
	outClosing                 // messages wait until it is known which have come
)

// tupleSend is a message for a queue.
type tupleSend struct {
	uct.Completion
	r     *Request
	t     *outTuple
	place place
	iov   [1]uct.IOV
	reg   *lease // of the buffer; nil if the caller has registered it
	slot  []byte // of tuples.slots; nil if it is not copied
	busy  bool   // the connection has it
	next  *tupleSend
}

// firstAsk is with which of its messages a tag gets a queue: not with the first, as many
// tags are used once.
const firstAsk = 2

// tupleSendStage is a message that goes through a queue.
var tupleSendStage = stage{
	name: "tag send", sized: true, role: noRole, lends: true, stop: (*Request).cancelThrough,
}

// newTupleLink is nil if tuples are off.
func (w *Worker) newTupleLink(m *messages) *tupleLink {
	if w.tuples == nil {
		return nil
	}
	return &tupleLink{x: w.tuples, m: m, short: -1, copy: -1}
}

// bind has tagged messages ask for tuples first: none goes in one call without that.
func (l *tupleLink) bind() {
	if l != nil {
		l.short, l.copy = l.m.maxShort, l.m.maxCopy
		l.m.maxShort, l.m.maxCopy = -1, -1
	}
}

// unbind see messages.unbind.
func (l *tupleLink) unbind() {
	if l != nil {
		l.short, l.copy = -1, -1
	}
}

// send is TagSend where tuples are on, and TagSendSync if sync is set.
func (x *tuples) send(e *EP, tag uint64, buf []byte, p *OpParams, sync bool) (*Request, error) {
	if m := e.msgs; m != nil && !sync && e.state == epOpen {
		l := m.tuple
		t := l.out.find(tag)
		if (t == nil || t.state < outOpen) && l.inOneCall(tag, buf, p) {
			l.wentUsual(t, tag)
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

// inOneCall sends a message the usual way if that takes one call and may be now.
func (l *tupleLink) inOneCall(tag uint64, buf []byte, p *OpParams) bool {
	switch w := l.x.w; {
	case len(buf) <= l.short && l.m.short(w, wire.AMTag, tag, buf) == nil:
		return true
	case (p == nil || p.Mem == nil) && len(buf) <= l.copy:
		return l.m.copied(w, wire.AMTag, tag, nil, buf) == nil
	}
	return false
}

// start sends a message that has a request.
func (x *tuples) start(r *Request) (*Request, error) {
	l, tag := r.ep.msgs.tuple, r.value
	t := l.out.find(tag)
	if t != nil && t.state >= outOpen {
		return t.send(r)
	}
	r.msg.number = l.usual + 1
	r, err := r.start()
	if err == nil {
		l.wentUsual(t, tag)
	}
	return r, err
}

// wentUsual counts a message that went the usual way, and wants a queue for the next ones
// if there are enough.
func (l *tupleLink) wentUsual(t *outTuple, tag uint64) {
	l.usual++
	if t == nil {
		if l.out.n >= countedTags*l.x.cfg.max {
			l.forget()
		}
		t = &outTuple{l: l, tag: tag, askAt: firstAsk}
		t.recall.Func = func(*uct.Completion) { t.recalled() }
		l.out.add(tag, t)
	}
	if t.count++; t.state == outUsual && t.count >= t.askAt && t.closes <= l.x.cfg.maxFallbacks {
		t.open()
	}
}

// countedTags is of how many tags messages are counted, for each that may have a queue.
const countedTags = 4

// forget drops the counts of tags that have no queue.
func (l *tupleLink) forget() {
	var old tupleTable[*outTuple]
	old, l.out = l.out, old
	old.all(func(tag uint64, t *outTuple) bool {
		if t.state != outUsual {
			l.out.add(tag, t)
		}
		return true
	})
}

// uncount is called when a message that was to go the usual way was not sent: those after it
// have come closer.
func (l *tupleLink) uncount(number uint64) {
	if l == nil || number == 0 {
		return
	}
	l.usual--
	l.out.all(func(_ uint64, t *outTuple) bool {
		for s := t.first; s != nil; s = s.next {
			if s.place.usual() >= number {
				s.place -= 1 << throughBits
			}
		}
		return true
	})
	for r := l.m.e.ops.first; r != nil; r = r.next {
		if r.msg != nil && r.msg.number > number {
			r.msg.number--
		}
		if r.stage.unsent != nil {
			r.stage.unsent(r, number)
		}
	}
}

// open wants a queue from the peer, if the transport has some.
func (t *outTuple) open() {
	l := t.l
	e := l.m.e
	x := e.lane(wireup.AM)
	switch {
	case e.state != epOpen || x == nil || !x.Proven:
		return
	case !x.Iface.attr.Caps.Has(uct.CapQueue):
		t.askAt = math.MaxInt
		return
	case l.open >= l.x.cfg.max:
		l.evict()
		return
	}
	if l.queues == nil {
		l.queues = x.EP.Ops().Queues
	}
	t.state = outAsked
	l.open++
	e.tellTuple(t.tag, wire.TupleOpen, 0, 0)
}

// evict closes the tuple that was not used for the longest time and has nothing under way,
// unless one is being closed.
func (l *tupleLink) evict() {
	var oldest *outTuple
	closing := false
	l.out.all(func(_ uint64, t *outTuple) bool {
		closing = t.state == outClosing
		if t.state == outOpen && t.first == nil && (oldest == nil || t.used < oldest.used) {
			oldest = t
		}
		return !closing
	})
	if oldest != nil && !closing {
		oldest.close(&l.x.stats.evicted, false)
	}
}

// take handles what the receiver tells of a queue. It reports false for what makes no
// sense.
func (l *tupleLink) take(c *wire.Tuple) bool {
	t := l.out.find(c.Tag)
	switch {
	case t == nil:
		return false
	case c.Kind == wire.TupleOpened && t.state == outAsked:
		t.opened(c)
	case c.Kind == wire.TupleStop && t.number == c.Number && t.state >= outOpen:
		t.close(nil, c.Value == 0)
	case c.Kind == wire.TupleClosed && t.number == c.Number && t.told && c.Value >= t.acked && c.Value <= t.sent:
		t.closed(c.Value)
	default:
		return false
	}
	return true
}

// opened begins with a queue, if there is one.
func (t *outTuple) opened(c *wire.Tuple) {
	if c.Number == 0 {
		t.later()
		return
	}
	t.state, t.number, t.max = outOpen, c.Number, int(min(c.Value, uint64(math.MaxInt)))
	t.sent, t.acked = 0, 0
	t.used = t.l.x.tick()
	t.l.m.e.tellTuple(t.tag, wire.TupleSwitch, c.Number, 0)
}

// later goes on the usual way, and wants a queue again after twice as many messages.
func (t *outTuple) later() {
	t.l.open--
	t.state, t.count, t.told = outUsual, 0, false
	if t.askAt < maxAsk {
		t.askAt *= 2
	}
}

// maxAsk is the most messages between two requests for a queue.
const maxAsk = 1 << 16

// send sends a message through the queue.
func (t *outTuple) send(r *Request) (*Request, error) {
	x := t.l.x
	s := x.newSend()
	s.r, s.t, s.place = r, t, t.l.nextPlace()
	if t.last == nil {
		t.first = s
	} else {
		t.last.next = s
	}
	t.last = s
	if t.unsent == nil {
		t.unsent = s
	}
	r.stage = &tupleSendStage
	r.flags |= reqPosted | reqLed
	r.awaitPeer()
	r.posted()
	t.used = x.tick()
	copied := false
	if t.state == outOpen {
		if s.prepare() {
			copied = s.slot != nil && !r.msg.acked
			t.pump()
		} else {
			t.close(&x.stats.long, true)
		}
	}
	if copied { // the caller has nothing to wait for
		r.onDone = nil
		r.Release()
		return nil, nil
	}
	return r.started()
}

// nextPlace is the place of the next message through a queue.
func (l *tupleLink) nextPlace() place {
	if l.through++; l.through == 1<<throughBits {
		l.through = 1
	}
	return newPlace(l.usual, l.through)
}

// newSend takes a record.
func (x *tuples) newSend() *tupleSend {
	s := x.idle
	if s == nil {
		s = &tupleSend{}
		s.Func = func(*uct.Completion) { s.done() }
	} else {
		x.idle, s.next = s.next, nil
	}
	return s
}

// prepare makes the scatter list. It reports false for a message that the queue does not
// take.
func (s *tupleSend) prepare() bool {
	r, t := s.r, s.t
	x, d := t.l.x, r.ep.lane(wireup.AM).Iface.domain
	n := len(r.buf)
	switch {
	case r.data() != nil || n > t.max:
		return false
	case n == 0:
		s.iov[0] = uct.IOV{}
		return true
	case x.cfg.copies && n <= copySlotLen && s.copy(d.Index):
		return true
	}
	s.iov[0].Buf = r.buf
	switch {
	case r.mem != nil && r.mem.In(d) != nil:
		s.iov[0].Mem = r.mem.In(d)
	case d.Attr.NeedMemH:
		if i := r.ep.lane(wireup.AM).Iface; !i.leases(n) {
			return false
		}
		reg, err := x.w.lease(d, r.buf, 0)
		if err != nil {
			return false
		}
		s.reg, s.iov[0].Mem = reg, reg.Mem.In(d)
	}
	return s.iov[0].Mem != nil || !d.Attr.NeedMemH
}

// pump gives messages to the connection as long as it takes some.
func (t *outTuple) pump() {
	for t.unsent != nil && t.state == outOpen {
		if t.conn == nil && !t.attach() {
			return
		}
		s := t.unsent
		s.Count, s.Status = 1, ucs.StatusOK
		iov := s.iov[:]
		if iov[0].Buf == nil {
			iov = nil
		}
		switch _, err := t.conn.SendZcopy(iov, &s.Completion); err {
		case nil:
		case uct.ErrNoResource: // the next one that has ended goes on
			return
		default: // the EP fails, or the peer has said that its queue takes more
			t.close(&t.l.x.stats.long, true)
			return
		}
		t.l.x.stats.sends.Inc()
		s.busy = true
		t.busy++
		t.sent++
		t.unsent = s.next
	}
}

// attach takes a connection, of a tuple that has nothing under way if need be. If all wait
// for receives, then this tuple does not wait for them, nor for the connections: it goes
// the usual way.
func (t *outTuple) attach() bool {
	for {
		c, err := t.l.queues.Attach(t.number)
		if err == nil {
			t.conn = c
			return true
		}
		if err != uct.ErrBusy || !t.l.detach() {
			t.close(&t.l.x.stats.busy, true)
			return false
		}
	}
}

// detach gives the connection back that was not used for the longest time.
func (l *tupleLink) detach() bool {
	var oldest *outTuple
	l.out.all(func(_ uint64, t *outTuple) bool {
		if t.conn != nil && t.busy == 0 && t.state == outOpen && (oldest == nil || t.used < oldest.used) {
			oldest = t
		}
		return true
	})
	if oldest == nil || oldest.conn.Detach() != nil {
		return false
	}
	oldest.conn = nil
	return true
}

// done is called when the transport has let go of a message.
func (s *tupleSend) done() {
	t := s.t
	s.busy = false
	t.busy--
	switch {
	case t.l.dead != ucs.StatusOK:
		s.end(t.l.dead)
	case s.Status == ucs.StatusOK:
		t.acked++
		t.pop().end(ucs.StatusOK)
		t.pump()
	case t.state == outOpen: // the peer has left the queue
		t.close(nil, true)
	}
}

// pop takes out the first message, which was received.
func (t *outTuple) pop() *tupleSend {
	s := t.first
	if t.first = s.next; t.first == nil {
		t.last = nil
	}
	if t.unsent == s {
		t.unsent = t.first
	}
	return s
}

// end ends the request of a message of which the transport has nothing.
func (s *tupleSend) end(st ucs.Status) {
	r := s.r
	s.release()
	r.flags &^= reqLed
	r.comp.Complete(st)
}

// release gives the record back.
func (s *tupleSend) release() {
	x := s.t.l.x
	if s.reg != nil {
		s.reg.end()
	}
	if s.slot != nil {
		x.slots = append(x.slots, s.slot)
	}
	s.r, s.t, s.reg, s.slot, s.iov[0] = nil, nil, nil, nil, uct.IOV{}
	s.next, x.idle = x.idle, s
}

// cancelThrough has a message that was given up, and is in no receive yet, taken back.
func (r *Request) cancelThrough() bool {
	r.flags |= reqCanceling
	if t := r.ep.msgs.tuple.out.find(r.value); t != nil {
		t.close(&t.l.x.stats.canceled, true)
	}
	return r.Done()
}

// close leaves the queue; why counts that. What has not been received is taken back. That
// it counts says that the tag is not to have a queue again and again.
func (t *outTuple) close(why *stats.Counter, counts bool) {
	if t.state != outOpen || t.l.dead != ucs.StatusOK {
		return
	}
	if counts {
		t.closes++
	}
	if why != nil {
		why.Inc()
	}
	t.state = outClosing
	if t.conn == nil {
		t.recalled()
		return
	}
	t.recall.Count, t.recall.Status = 1, ucs.StatusOK
	pending, err := t.conn.Recall(&t.recall)
	t.conn = nil
	if err == nil && !pending {
		t.recalled()
	}
}

// recalled tells the receiver what it may have got.
func (t *outTuple) recalled() {
	if t.l.dead == ucs.StatusOK {
		t.told = true
		t.l.m.e.tellTuple(t.tag, wire.TupleStopped, t.number, t.sent)
	}
}

// closed goes on the usual way: got messages have come, the others are sent again, each
// with its place among those that went the usual way meanwhile.
func (t *outTuple) closed(got uint64) {
	for ; t.acked < got; t.acked++ {
		t.pop().end(ucs.StatusOK)
	}
	l := t.l
	e := l.m.e
	s := t.first
	t.first, t.last, t.unsent = nil, nil, nil
	t.later()
	for s != nil {
		next := s.next
		if s.r.flags&(reqGivenUp|reqCanceling) != 0 {
			s.end(ucs.StatusCanceled)
		} else {
			e.tellTuple(t.tag, wire.TupleNext, t.number, uint64(s.place))
			s.again()
		}
		s = next
	}
	e.tellTuple(t.tag, wire.TupleResent, t.number, 0)
}

// again sends a message the usual way that was to go through a queue.
func (s *tupleSend) again() {
	r := s.r
	s.t.l.x.stats.resent.Inc()
	if s.slot != nil {
		r.buf = append([]byte(nil), r.buf...)
	}
	s.release()
	r.flags &^= reqPosted | reqLed | reqZcopy | reqAwaited
	r.stage = &tagChannel.send
	e := r.ep
	e.msgs.awaited.remove(r)
	e.list(r)
	if e.msgs.leaving && e.msgs.awaited.first == nil {
		e.w.schedule(e)
	}
	r.launch()
}

// endTuples ends what goes through queues of an EP whose operations end with st. What a
// transport has ends when that lets go.
func (m *messages) endTuples(st ucs.Status) {
	if m == nil || m.tuple == nil || m.tuple.dead != ucs.StatusOK {
		return
	}
	l := m.tuple
	l.dead = st
	var rest []*tupleSend
	l.out.all(func(_ uint64, t *outTuple) bool {
		for s := t.first; s != nil; s = s.next {
			if !s.busy {
				rest = append(rest, s)
			}
		}
		t.first, t.last, t.unsent, t.conn = nil, nil, nil, nil
		return true
	})
	for _, s := range rest {
		s.end(st)
	}
}
