package ucp

import (
	"fmt"
	"slices"
	"time"

	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/stats"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// inTuple is the queue for messages of one tag from one sender.
//
//	offered -- SWITCH --> open -- stop --> stopping -- STOPPED, all receives back --> closed -- RESENT -->
//
// An EP that ends stops its queues, and then nothing is waited for but the receives.
type inTuple struct {
	x   *tuples
	e   *EP
	m   *messages // of e when the queue was made
	i   *iface
	tag uint64
	q   uct.Queue

	state   inState
	posted  int        // receives that the queue has
	backlog []*tagRecv // for which it had no room, in order
	used    uint64

	stopped bool   // the queue takes no message any more
	looks   int    // how often it was tried in vain to have it so
	waits   bool   // in tuples.unstopped
	told    bool   // the sender has said how many it has sent
	sent    uint64 // that
	gone    bool   // the EP has ended
	listed  bool   // in tuples.ended
}

// inState is how far an inTuple has come.
type inState uint8

const (
	inOffered  inState = iota // the sender does not use the queue yet
	inOpen                    // it does
	inStopping                // it is to be closed
	inClosed                  // it was; the sender sends again what has not come
)

// maxQueueDepth is how many receives a queue holds; more wait here.
const maxQueueDepth = 128

// queuedRecv is what a receive has besides if it was in a queue. It stays with the tagRecv.
type queuedRecv struct {
	uct.QueueRecv
	v   *tagRecv
	t   *inTuple
	iov [2]uct.IOV
	reg *lease // of the buffer; nil if the caller has registered it
}

// tupleRecvStage is a receive in a queue. It can be canceled only by closing the queue.
var tupleRecvStage = stage{
	name: "tag receive", sized: true, role: noRole, settled: (*Request).recvSettled, lends: true,
	stop: (*Request).cancelQueued,
}

// cancelQueued closes the queue of a receive that is to be canceled. It reports whether the
// receive has ended by that; otherwise it ends with ErrCanceled as soon as the queue gives
// it back, unless it has a message.
func (r *Request) cancelQueued() bool {
	r.flags |= reqCanceling
	t := r.recv.queue.t
	if i := slices.Index(t.backlog, r.recv); i >= 0 {
		t.backlog = slices.Delete(t.backlog, i, i+1)
		r.recv.queue.release()
		r.ep = nil
		return true
	}
	t.stop(&t.x.stats.canceled)
	return r.Done() && r.status == ucs.StatusCanceled
}

// openQueue makes a queue for a peer that wants one, unless something speaks against it.
func (x *tuples) openQueue(e *EP, tag uint64) {
	t := x.newQueue(e, tag)
	if t == nil {
		x.stats.refused.Inc()
		e.tellTuple(tag, wire.TupleOpened, 0, 0)
		return
	}
	x.stats.opened.Inc()
	e.tellTuple(tag, wire.TupleOpened, t.q.Number(), uint64(x.maxMessage(t.i)))
}

// maxMessage is how long a message through queues of a transport may be, in bytes.
func (x *tuples) maxMessage(i *iface) int { return min(x.cfg.maxMessage, i.attr.Queue.MaxMessage) }

// newQueue makes a queue; nil if there is to be none now.
func (x *tuples) newQueue(e *EP, tag uint64) *inTuple {
	lane := e.lane(wireup.AM)
	if e.state != epOpen || x.paused || lane == nil || !lane.Iface.attr.Caps.Has(uct.CapQueue) || x.in.find(tag) != nil || x.fitsAny(tag) {
		return nil
	}
	i := lane.Iface
	if x.in.n >= min(x.cfg.max, i.attr.Queue.MaxQueues) {
		x.evict()
		return nil
	}
	if !x.makeSink() {
		return nil
	}
	q, err := i.Ext().Queues.NewQueue(min(maxQueueDepth, i.attr.Queue.MaxDepth))
	if err != nil {
		return nil
	}
	t := &inTuple{x: x, e: e, m: e.messaging(), i: i, tag: tag, q: q, used: x.tick()}
	i.Retain()
	x.in.add(tag, t)
	t.m.tuple.in = append(t.m.tuple.in, t)
	return t
}

// makeSink makes the memory for what is beyond the buffers of receives.
func (x *tuples) makeSink() bool {
	if x.sink == nil {
		mem, err := x.w.ctx.memory.Alloc(x.cfg.maxMessage, uct.AccessLocalWrite)
		if err != nil {
			return false
		}
		x.sink = mem
	}
	return true
}

// evict closes the queue that was not used for the longest time.
func (x *tuples) evict() {
	var oldest *inTuple
	x.in.all(func(_ uint64, t *inTuple) bool {
		if t.state <= inOpen && (oldest == nil || t.used < oldest.used) {
			oldest = t
		}
		return true
	})
	if oldest != nil {
		oldest.stop(&x.stats.evicted)
	}
}

// switched begins with a queue: all messages that were sent the usual way have come, and
// those receives that got none are the queue's.
func (t *inTuple) switched() {
	t.state = inOpen
	x := t.x
	if x.fitsAny(t.tag) {
		t.stop(&x.stats.wildcards)
		return
	}
	for t.state == inOpen && !x.paused {
		n := x.w.tags.Arrive(t.tag)
		if n == nil {
			return
		}
		if v := n.Owner; !t.post(v) {
			t.stop(&x.stats.wildcards)
			x.hold(v)
		}
	}
}

// post gives a receive to the queue. It reports false for one that cannot be.
func (t *inTuple) post(v *tagRecv) bool {
	q := v.queue
	if q == nil {
		q = &queuedRecv{v: v}
		q.Func = func(*uct.QueueRecv) { q.ended() }
		v.queue = q
	}
	q.t = t
	if !q.register() {
		return false
	}
	t.used = t.x.tick()
	err := uct.ErrNoResource
	if len(t.backlog) == 0 {
		err = q.post()
	}
	if err == uct.ErrNoResource {
		t.backlog = append(t.backlog, v)
	} else if err != nil {
		q.release()
		return false
	}
	v.req.ep, v.req.stage = t.e, &tupleRecvStage
	return true
}

// register makes the scatter list: the buffer, and what takes the rest.
func (q *queuedRecv) register() bool {
	t, v := q.t, q.v
	d, mem := t.i.domain, v.mem
	buf := v.buf
	if len(buf) > 0 && d.Attr.NeedMemH && (mem == nil || mem.In(d) == nil) {
		if !t.i.leases(len(buf)) {
			return false
		}
		reg, err := t.x.w.lease(d, buf, uct.AccessLocalWrite)
		if err != nil {
			return false
		}
		q.reg, mem = reg, reg.Mem
	}
	q.iov[0] = uct.IOV{Buf: buf}
	if mem != nil {
		q.iov[0].Mem = mem.In(d)
	}
	q.iov[1] = uct.IOV{Buf: t.x.sink.Bytes(), Mem: t.x.sink.In(d)}
	return true
}

// post posts the receive.
func (q *queuedRecv) post() error {
	iov := q.iov[:]
	if len(q.v.buf) == 0 {
		iov = q.iov[1:]
	}
	err := q.t.q.Post(&q.QueueRecv, iov)
	if err == nil {
		q.t.posted++
	}
	return err
}

// release gives up what the receive had for the queue.
func (q *queuedRecv) release() {
	if q.reg != nil {
		q.reg.end()
		q.reg = nil
	}
	q.iov = [2]uct.IOV{}
}

// ended is called when the queue has a message for the receive, or gives it back.
func (q *queuedRecv) ended() {
	t, v := q.t, q.v
	t.posted--
	q.release()
	v.req.ep = nil
	if q.Status == ucs.StatusOK {
		t.x.stats.receives.Inc()
		v.end(t.e, t.tag, q.Len)
	} else {
		t.x.giveBack(v)
	}
	if t.state == inStopping {
		t.proceed()
		return
	}
	t.postBacklog()
}

// postBacklog posts the receives that waited for room. If one cannot be posted, the queue is
// closed: nothing else would end it.
func (t *inTuple) postBacklog() {
	for len(t.backlog) > 0 {
		switch err := t.backlog[0].queue.post(); err {
		case nil:
			t.backlog = slices.Delete(t.backlog, 0, 1)
		case uct.ErrNoResource:
			return
		default:
			t.stop(&t.x.stats.wildcards)
			return
		}
	}
}

// giveBack takes a receive that a queue had.
func (x *tuples) giveBack(v *tagRecv) {
	r := v.req
	r.stage, r.ep = &tagRecvStage, nil
	if r.flags&(reqCanceling|reqGivenUp) != 0 || x.w.closed {
		r.settle(ucs.StatusCanceled)
		return
	}
	x.hold(v)
}

// stop begins to close the queue; why counts that.
func (t *inTuple) stop(why *stats.Counter) {
	if t.state >= inStopping {
		return
	}
	if why != nil {
		why.Inc()
	}
	x := t.x
	t.state = inStopping
	x.closing++
	x.pause()
	for _, v := range t.backlog {
		v.queue.release()
		x.giveBack(v)
	}
	t.backlog = nil
	if !t.gone && !t.told {
		again := uint64(0)
		if why == &x.stats.evicted {
			again = 1
		}
		t.e.tellTuple(t.tag, wire.TupleStop, t.q.Number(), again)
	}
	t.stopped = t.q.Stop() == nil
	t.proceed()
}

// Looks at a queue that does not stop as a peer is in the middle of a message.
const (
	// stopLooks is in how many calls of Progress, one after the other, it is tried again: for
	// longer than a peer takes that runs, which copies 8 KiB.
	stopLooks = 200
	// stopPause is after how long it is tried again from then on, until the peer runs, or its
	// link is down.
	stopPause = time.Millisecond
)

// stopAgain tries again to stop the queue, which does not wait.
func (t *inTuple) stopAgain() {
	x := t.x
	if t.stopped = t.q.Stop() == nil; t.stopped || t.looks < stopLooks {
		t.looks++
		t.proceed()
		return
	}
	if !t.waits {
		t.waits = true
		x.unstopped = append(x.unstopped, t)
	}
	a := &x.w.engine.Alarm
	a.Set(a.Now() + stopPause)
}

// lookAtUnstopped is called when the alarm goes off.
func (x *tuples) lookAtUnstopped() {
	if x == nil {
		return
	}
	for _, t := range x.unstopped {
		t.waits = false
		t.proceed()
	}
	x.unstopped = x.unstopped[:0]
}

// proceed has the next Progress go on with closing the queue.
func (t *inTuple) proceed() {
	if !t.listed {
		t.listed = true
		t.x.ended = append(t.x.ended, t)
		t.x.w.engine.Raise()
	}
}

// work goes on with closing queues.
func (x *tuples) work() int {
	if x == nil || len(x.ended) == 0 {
		return 0
	}
	ended := x.ended
	x.ended = nil
	for _, t := range ended {
		t.listed = false
		t.advance()
	}
	x.resume()
	x.handCertain()
	return len(ended)
}

// advance closes the queue when nothing of it is missing: the receives, and what the
// sender has to tell, unless it has gone.
func (t *inTuple) advance() {
	switch {
	case t.state != inStopping:
	case !t.stopped: // a peer is in the middle of a message
		t.stopAgain()
	case t.posted > 0 || !t.told && !t.gone:
	default:
		t.closeQueue()
	}
}

func (t *inTuple) closeQueue() {
	t.state = inClosed
	got := t.q.Received()
	t.x.w.keep(t.q.Close())
	t.i.Release()
	if t.gone {
		t.remove()
		return
	}
	if got > t.sent {
		t.e.markFailed(ucs.StatusRemoteInvalid, fmt.Errorf("%w: more messages came through a queue than were sent", ucs.ErrRemoteInvalid), t.i)
		return
	}
	t.e.tellTuple(t.tag, wire.TupleClosed, t.q.Number(), got)
}

// remove forgets a tuple whose queue is closed.
func (t *inTuple) remove() {
	t.x.in.remove(t.tag)
	l := t.m.tuple
	l.in = slices.DeleteFunc(l.in, func(o *inTuple) bool { return o == t })
	t.x.closing--
}

// take handles what the sender tells of the queue. It reports false for what makes no sense.
func (t *inTuple) take(c *wire.Tuple) bool {
	if t == nil || t.q.Number() != c.Number {
		return false
	}
	switch {
	case c.Kind == wire.TupleSwitch && t.state == inOffered:
		t.switched()
	case c.Kind == wire.TupleSwitch && t.state == inStopping: // it was evicted before
	case c.Kind == wire.TupleStopped && t.state <= inStopping && !t.told:
		t.told, t.sent = true, c.Value
		t.stop(nil)
		t.proceed()
	case c.Kind == wire.TupleResent && t.state == inClosed:
		t.remove()
		t.x.resume()
		t.x.handCertain()
	default:
		return false
	}
	return true
}

// endQueues closes the queues of an EP that has ended or closes.
func (m *messages) endQueues() {
	if m == nil || m.tuple == nil {
		return
	}
	for _, t := range slices.Clone(m.tuple.in) {
		if t.gone {
			continue
		}
		t.gone = true
		if t.state == inClosed {
			t.remove()
		} else {
			t.stop(nil)
		}
		t.proceed()
	}
}
