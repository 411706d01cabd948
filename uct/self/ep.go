package self

import (
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
)

// endpoint is a connection to an iface of the group.
type endpoint struct {
	rx      *queue // queue of the peer; noQueue when closed or failed
	pending base.PendingQueue
	peer    *iface // nil when closed or failed
	iface   *iface
	failed  bool
	closed  bool
	base.Slot
}

var _ uct.EP = (*endpoint)(nil)

// Ops implements uct.EP.
func (e *endpoint) Ops() *uct.Ops {
	return &uct.Ops{AM: e, Words: e, Put: e, Get: e, Atomics: e, Check: e, Map: e}
}

// errFailed is the error of a failed EP. The only reason for a failure is that the peer has closed.
var errFailed error = &ucs.OpError{TL: Name, Dev: DeviceName, Op: "ep",
	Err: fmt.Errorf("%w: %w", uct.ErrEPFailed, ucs.ErrPeerClosed)}

// NewEP implements uct.Iface. Errors: ErrInvalidAddr, ErrUnreachable.
func (it *iface) NewEP(p uct.EPParams) (uct.EP, error) {
	peer, err := it.peer(p.DeviceAddr, p.IfaceAddr)
	if err == nil && it.closed {
		err = uct.ErrClosed
	}
	if err != nil {
		return nil, &ucs.OpError{TL: Name, Dev: DeviceName, Op: "new ep", Err: err}
	}
	e := &endpoint{rx: &peer.rx, peer: peer, iface: it}
	it.open.Add(e)
	peer.peers[e] = true
	return e, nil
}

// postError returns the reason why a post on e is not possible now; nil if it is.
func (e *endpoint) postError() error {
	switch {
	case e.closed:
		return uct.ErrClosed
	case e.failed:
		return errFailed
	case e.pending.Blocks():
		return uct.ErrNoResource
	}
	return nil
}

// Check implements uct.Checker: the peer lives as long as this process, unless it closes.
func (e *endpoint) Check(*uct.Completion) (bool, error) { return false, e.postError() }

// ready reports whether a post is possible; it is cheaper than postError.
func (e *endpoint) ready() bool { return e.peer != nil && !e.pending.Blocks() }

// Flush implements uct.EP.
func (e *endpoint) Flush(*uct.Completion) (bool, error) {
	if e.failed {
		return false, errFailed
	}
	return false, nil
}

// Fence implements uct.EP.
func (e *endpoint) Fence() error {
	if e.failed {
		return errFailed
	}
	return nil
}

// AddPending implements uct.EP.
func (e *endpoint) AddPending(r *uct.PendingReq) error {
	switch {
	case e.closed:
		return uct.ErrClosed
	case e.failed:
		return errFailed
	case e.rx.room() && e.pending.Empty():
		return uct.ErrBusy
	}
	e.iface.events = true
	return e.iface.arb.Add(&e.pending, r)
}

// PurgePending implements uct.EP.
func (e *endpoint) PurgePending(f func(*uct.PendingReq)) { e.iface.arb.Purge(&e.pending, f) }

// fail fails the EP, because its peer has closed.
func (e *endpoint) fail() {
	e.failed = true
	e.rx, e.peer = &noQueue, nil
	e.iface.failedEPs = append(e.iface.failedEPs, e)
	e.iface.events = true
	if e.iface.rx.awaited {
		e.iface.wake()
	}
}

// Close implements uct.EP. Messages in the peer's queue are still delivered.
func (e *endpoint) Close() error {
	if e.closed {
		return nil
	}
	e.closed = true
	if e.peer != nil {
		delete(e.peer.peers, e)
		e.rx, e.peer = &noQueue, nil
	}
	e.iface.open.Remove(e)
	return nil
}
