package dv

import "github.com/gucx/gucx/uct"

// listIface is an rc_mlx5 iface with TX_POSTLIST: posts are batched, and one doorbell
// serves a list. Without it there is nothing to ring for, and no method looks.
type listIface struct{ *rcIface }

// listEP is an EP of a listIface.
type listEP struct{ rcEP }

// ring rings for what is batched on all EPs.
func (it listIface) ring() {
	if it.reg != nil { // an EP has been made
		it.reg.ring()
	}
}

// Ext implements uct.Iface.
func (it listIface) Ext() *uct.IfaceExt {
	ext := it.rcIface.Ext()
	ext.Wake = it
	return ext
}

// Progress implements uct.Iface. It rings first, for what was posted before, and
// last, for what handlers have posted.
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

// ring rings for what is batched on the EP.
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

// Close implements uct.EP. It rings for what was posted before the QP goes to ERR,
// and then for the work request that shows that all are flushed.
func (e *listEP) Close() error {
	e.ring()
	err := e.rcEP.Close()
	e.ring()
	return err
}

// udList is a ud_mlx5 iface with TX_POSTLIST. Its EPs need nothing of their own: all post
// to one queue, and who waits for one of them calls Progress.
type udList struct{ *udIface }

// ring rings for what is batched.
func (it udList) ring() { it.q.send.reg.ring() }

// Ext implements uct.Iface.
func (it udList) Ext() *uct.IfaceExt {
	ext := it.udIface.Ext()
	ext.Wake = it
	return ext
}

// Progress implements uct.Iface. It rings first, for what was posted before, so that
// what a loop fabric delivers at once is seen.
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

// Close implements uct.Iface. It rings for what was posted before; the core waits for
// what it posts itself.
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
