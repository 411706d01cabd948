package dv

import "github.com/gucx/gucx/uct"

// listIface is an rc_mlx5 iface with TX_POSTLIST above 1: it batches posts, and rings one doorbell
// for a list. An iface without lists has no such checks.
type listIface struct{ *rcIface }

// listEP is an EP of a listIface.
type listEP struct{ rcEP }

// ring rings for the batched posts of all EPs.
func (it listIface) ring() {
	if it.reg != nil { // nil before the first EP
		it.reg.ring()
	}
}

// Ext implements uct.Iface.
func (it listIface) Ext() *uct.IfaceExt {
	ext := it.rcIface.Ext()
	ext.Wake = it
	return ext
}

// Progress implements uct.Iface. It first rings for earlier posts, and at the end for posts of
// handlers.
func (it listIface) Progress() int {
	it.ring()
	n := it.rcIface.Progress()
	it.ring()
	return n
}

// Flush implements uct.Iface.
func (it listIface) Flush(c *uct.Completion) (pending bool, err error) {
	pending, err = it.rcIface.Flush(c)
	it.ring()
	return pending, err
}

// Fence implements uct.Iface.
func (it listIface) Fence() error {
	err := it.rcIface.Fence()
	it.ring()
	return err
}

// Arm implements uct.Waker: who sleeps calls nothing that would ring.
func (it listIface) Arm(e uct.Events) error {
	it.ring()
	return it.rcIface.Arm(e)
}

// Close implements uct.Iface.
func (it listIface) Close() error {
	it.ring()
	return it.rcIface.Close()
}

// ring rings for the batched posts of the EP.
func (e *listEP) ring() { e.sq.reg.ringQueue(&e.sq) }

// Flush implements uct.EP.
func (e *listEP) Flush(c *uct.Completion) (pending bool, err error) {
	pending, err = e.rcEP.Flush(c)
	e.ring()
	return pending, err
}

// Fence implements uct.EP.
func (e *listEP) Fence() error {
	e.ring()
	return e.rcEP.Fence()
}

// Close implements uct.EP. It rings for earlier posts before the QP enters ERR, and then for the
// work request that shows that all others are flushed.
func (e *listEP) Close() error {
	e.ring()
	err := e.rcEP.Close()
	e.ring()
	return err
}

// udList is a ud_mlx5 iface with TX_POSTLIST above 1. It needs no EP type: all EPs post to one
// queue, and a caller that waits for an EP calls Progress of the iface.
type udList struct{ *udIface }

// ring rings for the batched posts.
func (it udList) ring() { it.q.send.reg.ring() }

// Ext implements uct.Iface.
func (it udList) Ext() *uct.IfaceExt {
	ext := it.udIface.Ext()
	ext.Wake = it
	return ext
}

// Progress implements uct.Iface. It first rings for earlier posts, so that it polls what a loop
// fabric delivers at once.
func (it udList) Progress() int {
	it.ring()
	return it.udIface.Progress()
}

// Flush implements uct.Iface.
func (it udList) Flush(c *uct.Completion) (pending bool, err error) {
	pending, err = it.udIface.Flush(c)
	it.ring()
	return pending, err
}

// Close implements uct.Iface. It rings for earlier posts. The core waits for its own posts.
func (it udList) Close() error {
	it.ring()
	return it.udIface.Close()
}

// Arm implements uct.Waker: who sleeps calls nothing that would ring.
func (it udList) Arm(e uct.Events) error {
	err := it.udIface.Arm(e)
	it.ring()
	return err
}
