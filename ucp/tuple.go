package ucp

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/gucx/gucx/ucp/internal/match"
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/ucp/internal/tuple"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Default limits of tuple queues.
const (
	defaultTupleqMax        = 1024
	defaultTupleqMaxMessage = 1 << 20
)

// tupleProtocol implements tagged messages through receive queues of the transport.
var tupleProtocol = protocol{
	init: func(w *Worker) {
		if w.tuples = newTuples(w); w.tuples != nil {
			w.tag.matcher, w.tag.slowTagRecv = w.tuples, true
		}
	},
	handlers: func(w *Worker) []handler {
		if w.tuples == nil {
			return nil
		}
		return []handler{{wire.AMTuple, uct.AMHandlerFunc(w.handleTuple)}}
	},
	work:         func(w *Worker) int { return w.tuples.work() },
	alarm:        func(w *Worker) { w.tuples.retryStops() },
	messaging:    (*EP).newTupleLink,
	deferred:     func(e *EP) { e.msgs.useReleased() },
	unsent:       (*Request).tupleUnsent,
	lanesClosing: func(e *EP, st ucs.Status) { e.msgs.endTuples(st) },
	lanesClosed:  func(e *EP) { e.msgs.endQueues() },
	stopped:      func(e *EP) { e.msgs.endQueues() },
	freed:        func(w *Worker) error { return w.tuples.close() },
}

// tuples is the state of a worker for messages through receive queues of the transport. Package tuple has the
// protocol. Worker.tuples is nil if the configuration does not enable it.
type tuples struct {
	w      *Worker
	cfg    tuple.Config
	copies bool // the sender copies messages up to copySlotLen
	stats  tuple.Stats
	in     tuple.Receiver[*tagRecv, *TagMessage]
	order  uint64 // number of the latest receive

	sink  *region.Mem   // registered memory for bytes beyond the buffers of receives; nil until there is a queue
	idle  *tupleSend    // pool of records
	slots [][]byte      // free buffers for messages that the sender copies
	chunk []*region.Mem // registered memory of which slots are parts
}

// newTuples returns the state of a worker; nil if the configuration does not enable tuple queues.
func newTuples(w *Worker) *tuples {
	c := &w.ctx.cfg
	if c.TagProto != tagProtoTupleq && c.TagProto != tagProtoCopy {
		return nil
	}
	x := &tuples{w: w, copies: c.TagProto == tagProtoCopy, cfg: tuple.Config{
		Max:        cmp.Or(c.TupleqMax, defaultTupleqMax),
		MaxMessage: int(max(lengthOf(c.TupleqMaxMessage, defaultTupleqMaxMessage), 1)), Wildcards: !c.TupleqNoWildcards,
	}}
	x.in.Init(x, &w.tag.table, &x.cfg, &x.stats)
	x.stats.AddTo(w.stats.root.Child("tupleq"))
	return x
}

// close releases the memory of the worker for tuple queues. The ifaces have closed the queues.
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

// work continues to close queues. retryStops checks queues again that did not stop.
func (x *tuples) work() int {
	if x == nil {
		return 0
	}
	return x.in.Work()
}

func (x *tuples) retryStops() {
	if x != nil {
		x.in.RetryStops()
	}
}

// errNoWildcards is the error of a receive with a wildcard if Config.TupleqNoWildcards is set.
var errNoWildcards = fmt.Errorf("%w: a mask that is not full, but TUPLEQ_NO_WILDCARDS=y", ucs.ErrInvalidParam)

// receiveInto implements tagMatcher.
func (x *tuples) receiveInto(buf []byte, tag, mask uint64, info *TagInfo, p *OpParams) (*Request, error) {
	if mask != math.MaxUint64 && !x.cfg.Wildcards {
		return nil, recvError(len(buf), errNoWildcards)
	}
	return x.receive(x.w.newTagRecv(buf, info, p).recv, tag, mask)
}

// receive implements tagMatcher.
func (x *tuples) receive(v *tagRecv, tag, mask uint64) (*Request, error) {
	v.node.Tag, v.node.Mask = tag, mask
	x.order++
	v.order = x.order
	x.in.Admit(&v.node)
	if len(x.w.tag.blocked) > 0 && !v.req.Done() {
		x.w.receivePosted(tag, mask)
	}
	if v.req.Done() { // the caller sees the result; the next user of the request must not see this record
		v.req.onDone = nil
	}
	return v.req.started()
}

// probe implements tagMatcher.
func (x *tuples) probe(tag, mask uint64) *match.Msg[*TagMessage] { return x.in.Probe(tag, mask) }

// paused implements tagMatcher.
func (x *tuples) paused() bool { return x.in.Paused() }

// competes implements tagMatcher.
func (x *tuples) competes(m *messages) bool { return m.tuple != nil && m.tuple.in.Competes() }

// listed implements tagMatcher.
func (x *tuples) listed(m *messages, tag uint64) {
	if x.w.maySend(m, tag) {
		m.tuple.in.Waits(tag)
	}
}

// Resumed implements tuple.Worker.
func (x *tuples) Resumed() { x.w.queryAll() }

// refuse implements tagMatcher.
func (x *tuples) refuse(m *messages) { m.endQueues() }

// cancelAll implements tagMatcher. Receives in queues have completed with their
// EPs, or complete when the ifaces close.
func (x *tuples) cancelAll() {
	for n := x.in.Held(); n != nil; n = x.in.Held() {
		n.Owner.req.Cancel()
	}
}

// tupleHeldStage is the stage of a receive that waits while the worker is paused.
var tupleHeldStage = stage{
	class: &tagRecvClass, name: "tag receive", sized: true, role: noRole, completed: (*Request).postedSettled,
	tryCancel: func(r *Request) bool { return r.worker.tuples.in.Unhold(&r.recv.node) },
}

// Order implements tuple.Worker.
func (x *tuples) Order(v *tagRecv) uint64 { return v.order }

// Queueable implements tuple.Worker.
func (x *tuples) Queueable(v *tagRecv) bool { return !v.typed }

// Expects implements tuple.Worker.
func (x *tuples) Expects(v *tagRecv) { v.req.stage = &tagRecvStage }

// Holds implements tuple.Worker.
func (x *tuples) Holds(v *tagRecv) { v.req.stage = &tupleHeldStage }

// Deliver implements tuple.Worker.
func (x *tuples) Deliver(u *TagMessage, v *tagRecv) { u.unlink().deliver(v) }

// Source implements tuple.Worker.
func (x *tuples) Source(u *TagMessage) *tupleSource { return &u.msgs.tuple.in }

// Place implements tuple.Worker.
func (x *tuples) Place(u *TagMessage) *tuple.Place { return &u.place }

// Before implements tuple.Worker.
func (x *tuples) Before(u *TagMessage) *match.Msg[*TagMessage] {
	if u.prev == nil {
		return nil
	}
	return &u.prev.node
}

// LastUnexpected implements tuple.Conn.
func (l *tupleLink) LastUnexpected() *match.Msg[*TagMessage] {
	if u := l.m.tag.unexpected.last; u != nil {
		return &u.node
	}
	return nil
}

// Requeue implements tuple.Worker.
func (x *tuples) Requeue(u *TagMessage) {
	x.w.tag.table.Remove(&u.node)
	u.msgs.tag.unexpected.remove(u)
	u.storeUnexpected()
}

// Raise implements tuple.Worker.
func (x *tuples) Raise() { x.w.engine.Raise() }

// WakeIn implements tuple.Worker.
func (x *tuples) WakeIn(d time.Duration) {
	a := &x.w.engine.Alarm
	a.Set(a.Now() + d)
}

// withArrivalOrder implements tagMatcher. The place of a message that is sent again depends on the number of messages
// outside of queues, so the handler counts them.
func (x *tuples) withArrivalOrder(h uct.AMHandler) uct.AMHandler {
	w, handle := x.w, h.HandleAM
	return uct.AMHandlerFunc(func(data []byte, desc uct.Desc) bool {
		var h wire.Head
		e := (*EP)(nil)
		if _, ok := h.Unpack(data); ok {
			e = w.eps.Find(h.EP)
		}
		if e == nil || !e.receives() || e.link == nil {
			return handle(data, desc)
		}
		m := e.messaging()
		if !w.maySend(m, h.Word) {
			return handle(data, desc)
		}
		m.tuple.in.BeforeArrival(h.Word)
		last := m.tag.unexpected.last
		keep := handle(data, desc)
		if u := m.tag.unexpected.last; u == nil || u == last {
			m.tuple.in.AfterArrival(nil)
		} else {
			m.tuple.in.AfterArrival(&u.node)
		}
		return keep
	})
}

// handleTuple handles a control message of a peer about a queue.
func (w *Worker) handleTuple(data []byte, _ uct.Desc) bool {
	var c wire.Tuple
	if !c.Unpack(data) {
		w.stats.badMessages.Inc()
		return false
	}
	if e := w.connected(c.EP); e == nil || !e.messaging().tuple.take(&c) {
		w.stats.badMessages.Inc()
	}
	return false
}
