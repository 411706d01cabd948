package ucp

import (
	"github.com/gucx/gucx/ucp/internal/engine"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// Stages of requests that wait for all earlier operations and then flush the lanes.
var (
	flushStage = stage{
		name: "flush", role: noRole, first: (*Request).flushStart, post: (*Request).flushLanes, reportsLaneLoss: true,
	}
	fenceStage = stage{
		name: "fence", role: noRole, first: (*Request).flushStart, post: (*Request).flushLanes,
		completed: (*Request).unfence, fence: true,
	}
	// drainStage then notifies the peer that the EP closes.
	drainStage = stage{
		name: "close", role: noRole, first: (*Request).flushStart, post: (*Request).flushLanes,
		done: (*Request).drained,
	}
)

// groupStage waits for its child requests, each of which flushes an EP.
var groupStage = stage{name: "flush of the worker", role: noRole}

// Flush completes all operations issued on the EP before: when its request is complete,
// puts and atomics are visible at the peer and gets are
// complete. A nil request means that they are already. Errors: as [EP.Err]. If the EP fails, the request
// completes with the reason.
func (e *EP) Flush() (*Request, error) {
	if x := e.link.only(); x != nil && e.ops.first == nil && e.state == epOpen {
		r := e.w.newDirect()
		r.ep, r.stage = e, &flushStage
		pending, err := x.EP.Flush(&r.comp)
		if err == nil {
			if pending {
				return r.markPending(), nil
			}
			r.recycleCompleted()
			return nil, nil
		}
		if r, busy, err := r.notPending(err); !busy {
			return r, err
		}
	}
	return e.flushSlow()
}

//go:noinline
func (e *EP) flushSlow() (*Request, error) {
	if e.state != epOpen {
		return nil, e.refuses(action{stage: &flushStage})
	}
	if e.ops.first == nil && e.link == nil {
		return nil, nil
	}
	return e.flush(nil)
}

// flush starts a flush, as a child of parent if parent is not nil.
func (e *EP) flush(parent *Request) (*Request, error) {
	r := e.w.newRequest(e, &flushStage)
	r.parent = parent
	e.list(r)
	if e.ops.first == r {
		r.flushStart()
	}
	return r.started()
}

// flushStart runs when every operation before the flush has completed. The lanes then flush
// the operations that have no request.
func (r *Request) flushStart() {
	if r.flags&(reqPosted|reqDone|reqWaiting) != 0 {
		return
	}
	r.flags |= reqPosted
	if st := r.ep.closing.aborting; st != ucs.StatusOK {
		r.complete(st)
		return
	}
	if r.ep.link == nil {
		r.posted()
		return
	}
	r.proceed()
}

// flushLanes flushes the lanes one after the other, as far as there are resources.
func (r *Request) flushLanes() error {
	for l := r.ep.link; int(r.lane) < len(l.lanes.All); r.lane++ {
		x := &l.lanes.All[r.lane]
		if !x.Active || !x.Connected {
			continue
		}
		r.comp.Count++
		pending, err := x.EP.Flush(&r.comp)
		if !pending || err != nil {
			r.comp.Count--
		}
		if err != nil {
			return err
		}
	}
	if r.stage.reportsLaneLoss && r.ep.link.lanes.Unreported() != ucs.StatusOK {
		r.fail(r.ep.link.lanes.Unreported())
	}
	return nil
}

// drained continues EP.Close when no operation is left.
func (r *Request) drained() {
	e := r.ep
	r.complete(r.comp.Status)
	switch {
	case e.closing.ending || e.closing.aborting != ucs.StatusOK: // the abort disconnects
	case e.delays(), e.awaited.first != nil:
		e.queue().closesWhenAnswered = true
	default:
		e.disconnectAndDestroy()
	}
}

// Fence orders operations: those issued on the EP after it take effect at the peer after
// those issued before it. It does not block. If the transport cannot order them
// by itself (several lanes, or operations that are not all posted), later
// operations wait until the earlier ones are complete. A tagged message through a queue (TagProto
// tupleq) is not ordered by it: wait for a Flush before the send instead. Errors: as Err.
func (e *EP) Fence() error {
	if e.state != epOpen {
		return e.refuses(action{stage: &fenceStage})
	}
	if e.ops.first == nil && e.link == nil {
		return nil
	}
	if x := e.link.only(); x != nil && e.counts.unposted == 0 && e.fence.count == 0 {
		err := x.EP.Fence()
		if err != nil && err != uct.ErrNoResource && !e.canReroute(&fenceStage, err) {
			return e.refused(action{stage: &fenceStage}, err)
		}
		if err == nil {
			return nil
		}
	}
	e.fenceByFlush()
	return nil
}

// only returns the active lane if the link has exactly one; otherwise nil.
func (l *link) only() *lane {
	if l == nil {
		return nil
	}
	return l.lanes.Single
}

// ordered returns the only lane of the connection if its transport has a [uct.Notifier], which promises: a message after a
// fence arrives after the puts before the fence, and does not arrive if one of these puts has failed. Otherwise, and if
// there are other lanes, which may transfer a part of a put, it returns nil.
func (l *link) ordered() *lane {
	if x := l.only(); x != nil && x.Notify != nil && x == l.lanes.Use[wireup.AM] {
		return x
	}
	return nil
}

// fenceByFlush makes later operations wait until all earlier ones are complete.
// If earlier operations wait, the fence waits in the same queue.
func (e *EP) fenceByFlush() {
	e.fence.count++
	e.unbind()
	r := e.w.newRequest(e, &fenceStage)
	e.list(r)
	r.Release()
	if !e.waiting.Empty() || e.fence.barrier != nil {
		r.flags |= reqWaiting
		e.enqueueWaiting(r)
		return
	}
	e.fence.barrier = r
	if e.ops.first == r {
		r.flushStart()
	}
}

// unfence releases the operations that were issued after a fence.
func (r *Request) unfence() {
	e := r.ep
	e.fence.count--
	if e.fence.barrier == r {
		e.fence.barrier = nil
	}
	if e.state == epOpen && e.fence.count == 0 {
		e.bind()
	}
	if e.state < epFailed { // also a closing EP, which waits for the operations behind the fence
		e.replay()
	}
}

// Flush is EP.Flush for all EPs of the worker. It skips EPs that have failed, whose
// operations are complete.
func (w *Worker) Flush() (*Request, error) {
	if w.closed {
		return nil, engine.ErrClosed
	}
	r := w.newRequest(nil, &groupStage)
	for e := range w.eps.All() {
		if e.state != epOpen || e.ops.first == nil && e.link == nil {
			continue
		}
		r.comp.Count++
		if child, err := e.flush(r); err == nil && child != nil {
			child.Release()
		}
	}
	r.comp.Complete(ucs.StatusOK)
	return r.started()
}

// Fence is EP.Fence for all EPs of the worker. It skips EPs that have failed.
func (w *Worker) Fence() error {
	if w.closed {
		return engine.ErrClosed
	}
	for e := range w.eps.All() {
		if e.state == epOpen {
			if err := e.Fence(); err != nil {
				return err
			}
		}
	}
	return nil
}

// implicit tracks the operations of an EP that have no request.
type implicit struct {
	// comp counts the operations in flight, plus one while no request waits for their
	// completion, so that it fires only then.
	comp    uct.Completion
	awaited bool
	iov     [1]uct.IOV // of the operation that is being posted
}

// inFlight reports whether some operations are in flight.
func (i *implicit) inFlight() bool { return i != nil && (i.awaited || i.comp.Count > 1) }

// await makes comp fire when the last operation in flight has completed. It has no effect if none is in flight.
func (i *implicit) await() {
	if i.inFlight() && !i.awaited {
		i.awaited = true
		i.comp.Count--
	}
}

// implied returns the state of the EP's operations without a request, and makes it first if needed.
func (e *EP) implied() *implicit {
	if e.implicit == nil {
		e.makeImplicit()
	}
	return e.implicit
}

//go:noinline
func (e *EP) makeImplicit() {
	e.implicit = &implicit{}
	e.implicit.comp.Count = 1
	e.implicit.comp.Func = func(c *uct.Completion) {
		c.Count, c.Status = 1, ucs.StatusOK
		e.implicit.awaited = false
		e.onIdle()
	}
}
