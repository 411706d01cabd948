package rccore

import "github.com/gucx/gucx/uct"

// Flush implements uct.EP.
func (e *EP) Flush(c *uct.Completion) (pending bool, err error) {
	pi := e.PI
	if e.state != stateReady || e.Sig != pi {
		if pending, err = e.flushStart(); !pending || err != nil {
			return pending, err
		}
		pi = e.PI
	} else if pi == e.CI {
		return false, nil
	}
	switch {
	case c == nil:
	case e.waiter.comp == nil && (e.opHead == nil || e.opTail.kind != opFlush):
		w := &e.waiter
		w.comp, w.completedSN, w.sn, e.waiterKind = c, pi-1, pi, opFlush
		e.NextOp = min(e.NextOp, pi)
	default:
		return e.flushOp(c)
	}
	return true, nil
}

// flushOp queues an op that completes c with the last work request, which is signaled.
func (e *EP) flushOp(c *uct.Completion) (pending bool, err error) {
	o := e.it.ops.get()
	if o == nil {
		return false, uct.ErrNoResource
	}
	o.kind, o.comp = opFlush, c
	e.queue(o)
	return true, nil
}

// flushStart ensures a signaled completion after all posted work requests. It reports whether any
// is in flight.
func (e *EP) flushStart() (pending bool, err error) {
	if e.state == stateFailed || e.state == stateClosed {
		return false, e.err
	}
	if e.PI == e.CI {
		return false, nil
	}
	if e.Sig != e.PI {
		if err := e.postNop(); err != nil {
			return false, err
		}
	}
	return true, nil
}

// Fence implements uct.EP. An RC queue executes in order, except that work requests after a read or
// atomic may pass it (IBTA volume 1, 10.8.3.3). In that case the next work request carries the
// fence flag.
func (e *EP) Fence() error {
	if e.state == stateFailed || e.state == stateClosed {
		return e.err
	}
	if e.lastReadPI > e.CI {
		e.fenced, e.Room = true, 0
	}
	return nil
}

// flushPoll starts a flush on every EP and reports whether one has work requests in flight.
func (it *Iface) flushPoll() (pending bool, err error) {
	for _, e := range it.open.All() {
		if e.state == stateFailed {
			continue
		}
		busy, err := e.flushStart()
		if err != nil {
			return false, err
		}
		pending = pending || busy
	}
	return pending, nil
}

// flushAll is Flush with a completion. If not all EPs can flush, it starts none.
func (it *Iface) flushAll(c *uct.Completion) (pending bool, err error) {
	if pending, err = it.flushPoll(); err != nil || !pending {
		return false, err
	}
	busy := 0
	for _, e := range it.open.All() {
		if e.state != stateFailed && e.PI != e.CI {
			busy++
		}
	}
	if it.ops.freeCount < busy {
		return false, uct.ErrNoResource
	}
	all := it.groups.Get(c, busy)
	for _, e := range it.open.All() {
		if e.state != stateFailed && e.PI != e.CI {
			_, _ = e.flushOp(all) // it.ops.left was checked
		}
	}
	return true, nil
}
