package tcp

import "github.com/gucx/gucx/uct"

// AddPending implements uct.EP.
func (e *endpoint) AddPending(r *uct.PendingReq) error {
	if e.state != epReady {
		return e.err
	}
	if e.pending.Empty() && e.hasResources() {
		return uct.ErrBusy
	}
	return e.it.arb.Add(&e.pending, r)
}

// hasResources reports whether there are resources for every type of request.
func (e *endpoint) hasResources() bool {
	c := e.conn
	if c.state >= connBroken || e.postAfter > c.acked || !e.canAwaitReply() || !e.canPostZcopy() {
		return false
	}
	c.start()
	return c.makeRoom(int(e.it.cfg.SegSize)+frameOverhead) != nil
}

// PurgePending implements uct.EP.
func (e *endpoint) PurgePending(f func(*uct.PendingReq)) { e.it.arb.Purge(&e.pending, f) }
