package ucp

import (
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Flush asks for the remote completion of all operations issued on the EP before:
// when the request ends, puts and atomics are visible at the peer and gets are
// done. A nil request says that they are already. Errors: as [EP.Err]; the request
// gets the reason if the EP fails meanwhile.
func (e *EP) Flush() (*Request, error) {
	if e.state != epOpen {
		return nil, e.Err()
	}
	if e.first == nil && e.link == nil {
		return nil, nil
	}
	if x := e.link.only(); x != nil && e.first == nil {
		r := e.w.newRequest(e, opFlush)
		pending, err := x.ep.Flush(&r.comp)
		if pending {
			r.flags |= reqFlushing
		}
		if r, busy, err := r.direct("flush", pending, err); !busy {
			return r, err
		}
	}
	return e.flush(opFlush, nil)
}

// flush makes a flush, as a child of parent if there is one.
func (e *EP) flush(kind opKind, parent *Request) (*Request, error) {
	r := e.w.newRequest(e, kind)
	r.parent = parent
	e.list(r)
	if e.first == r {
		r.flushStart()
	}
	return r.started()
}

// flushStart runs when every operation before the flush has ended: what is left is
// what completes without a request, which the lanes flush.
func (r *Request) flushStart() {
	if r.flags&(reqFlushing|reqDone|reqWaiting) != 0 {
		return
	}
	r.flags |= reqFlushing
	if st := r.ep.aborting; st != ucs.StatusOK {
		r.settle(st)
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
	for l := r.ep.link; int(r.lane) < len(l.lanes); r.lane++ {
		x := &l.lanes[r.lane]
		if !x.active {
			continue
		}
		r.comp.Count++
		pending, err := x.ep.Flush(&r.comp)
		if !pending {
			r.comp.Count--
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Fence orders: operations issued on the EP after it take effect at the peer after
// those issued before it. It waits for nothing; where the transport cannot order
// by itself (several lanes, or operations that are not all posted), later
// operations are held back until the earlier ones are complete. Errors: as Err.
func (e *EP) Fence() error {
	if e.state != epOpen {
		return e.Err()
	}
	if e.first == nil && e.link == nil {
		return nil
	}
	if x := e.link.only(); x != nil && e.loose == 0 && e.fences == 0 {
		err := x.ep.Fence()
		if err != nil && err != uct.ErrNoResource {
			return e.refused("fence", err)
		}
		if err == nil {
			return nil
		}
	}
	e.fenceByFlush()
	return nil
}

// only is the active lane if there is just one.
func (l *link) only() *lane {
	if l == nil {
		return nil
	}
	return l.single
}

// fenceByFlush holds later operations back until all earlier ones are complete.
// Behind operations that wait themselves the fence takes its place in their line.
func (e *EP) fenceByFlush() {
	e.fences++
	e.unbindKeys()
	r := e.w.newRequest(e, opFence)
	e.list(r)
	r.Release()
	if len(e.waiting) > 0 || e.barrier != nil {
		r.flags |= reqWaiting
		e.waiting = append(e.waiting, r)
		return
	}
	e.barrier = r
	if e.first == r {
		r.flushStart()
	}
}

// unfence lets the operations go on that were issued after a fence.
func (e *EP) unfence(r *Request) {
	e.fences--
	if e.barrier == r {
		e.barrier = nil
	}
	if e.state == epOpen {
		if e.fences == 0 {
			e.bindKeys()
		}
		e.replay()
	}
}

// Flush is EP.Flush over all EPs of the worker. EPs that have failed are passed
// over: their operations have ended.
func (w *Worker) Flush() (*Request, error) {
	if w.closed {
		return nil, errWorkerClosed
	}
	r := w.newRequest(nil, opGroup)
	for i := range w.eps.slots {
		e := w.eps.slots[i].ep
		if e == nil || e.state != epOpen || e.first == nil && e.link == nil {
			continue
		}
		r.comp.Count++
		if child, err := e.flush(opFlush, r); err == nil && child != nil {
			child.Release()
		}
	}
	r.comp.Complete(ucs.StatusOK)
	return r.started()
}

// Fence is EP.Fence over all EPs of the worker. EPs that have failed are passed
// over.
func (w *Worker) Fence() error {
	if w.closed {
		return errWorkerClosed
	}
	for i := range w.eps.slots {
		if e := w.eps.slots[i].ep; e != nil && e.state == epOpen {
			if err := e.Fence(); err != nil {
				return err
			}
		}
	}
	return nil
}
