package sm

import (
	"fmt"

	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
)

// endpoint is a connection to an iface of this or another process. EPs of one iface to the same
// peer share a link, and so the order of their messages.
type endpoint struct {
	*outLink
	pending  base.PendingQueue
	maxShort int  // limit of a short put in bytes
	maxGet   int  // limit of a short get in bytes; negative if there are none
	maxBcopy int  // limit of a bcopy get in bytes
	fenced   bool // a fence waits for targetOps

	iface  *iface
	state  epState
	reason error // error of a failed EP
	ops    opQueue
	base.Slot
}

// epState is the state of a connection.
type epState uint8

const (
	epIdle    epState = iota // nothing was posted yet
	epDialing                // a goroutine dials
	epUp
	epFailed
	epClosed
)

var _ uct.EP = (*endpoint)(nil)

// Ops implements uct.EP.
func (e *endpoint) Ops() *uct.Ops {
	return &uct.Ops{AM: e, Words: e, Put: e, Get: e, Atomics: e, Check: e, Explain: e, Mapped: e, Map: e}
}

// NewEP implements uct.Iface. The EP connects at the first post. Errors: ErrInvalidAddr,
// ErrUnreachable.
func (it *iface) NewEP(p uct.EPParams) (uct.EP, error) {
	gid, err := peerGID(it.device, p.DeviceAddr, p.IfaceAddr)
	if err == nil && p.IfaceAddr == nil {
		err = uct.ErrInvalidAddr
	}
	if err == nil && it.closed {
		err = uct.ErrClosed
	}
	if err != nil {
		return nil, &ucs.OpError{TL: Name, Dev: DeviceName, Op: "new ep", Err: err}
	}
	e := &endpoint{iface: it, maxShort: it.attr.Put.MaxShort, maxGet: -1, maxBcopy: it.attr.Get.MaxBcopy}
	if it.attr.Caps.Has(uct.CapGetShort) {
		e.maxGet = it.attr.Get.MaxShort
	}
	it.join(gid, e)
	it.open.Add(e)
	return e, nil
}

// ready reports whether a direct post is possible; it is cheaper than postError.
func (e *endpoint) ready() bool {
	return e.hold.Load() == 0 && !e.fenced && !e.pending.Blocks()
}

// Check implements uct.Checker: the socket is closed when the peer dies.
func (e *endpoint) Check(*uct.Completion) (bool, error) {
	if e.hold.Load() == 0 {
		return false, nil
	}
	return false, e.postError()
}

// postError returns the reason why a post is not possible now. It dials if the EP is idle.
//
//go:noinline
func (e *endpoint) postError() error {
	switch e.state {
	case epIdle:
		e.dial()
	case epFailed:
		return e.reason
	case epClosed:
		return uct.ErrClosed
	}
	return uct.ErrNoResource
}

// fail fails the EP.
func (e *endpoint) fail(err error) {
	e.reason = fmt.Errorf("%w: %w", uct.ErrEPFailed, err)
	e.state = epFailed
	e.detach(statusOf(err))
	if f := e.iface.onError; f != nil && e.state == epFailed { // a completion may have closed it
		f(e, e.reason)
	}
}

// detach completes operations in flight with st and removes the EP from its link. A completion may close the EP, which
// calls detach again.
func (e *endpoint) detach(st uct.Status) {
	l := e.outLink
	if l == unconnected {
		return
	}
	e.outLink = unconnected
	e.abandonPieces(l)
	e.cancelOps(st)
	l.removeEP(e)
}

// room reports whether every type of post has resources.
func (e *endpoint) room() bool {
	return e.hold.Load() == 0 && !e.fenced && e.tx.room() && e.ops.room()
}

// AddPending implements uct.EP.
func (e *endpoint) AddPending(r *uct.PendingReq) error {
	switch {
	case e.state == epFailed || e.state == epClosed:
		return e.postError()
	case e.state == epIdle, e.pending.Empty() && e.room():
		return uct.ErrBusy // the first post connects
	}
	e.iface.waits()
	return e.iface.arb.Add(&e.pending, r)
}

// PurgePending implements uct.EP.
func (e *endpoint) PurgePending(f func(*uct.PendingReq)) { e.iface.arb.Purge(&e.pending, f) }

// Fence implements uct.EP. Operations that this side executes are complete. Operations that the peer executes must
// complete before the next post, which may be a direct access.
func (e *endpoint) Fence() error {
	if e.state == epFailed {
		return e.reason
	}
	e.fenced = !e.ops.empty()
	mmio.ToDevice()
	return nil
}

// Close implements uct.EP. Messages that were sent are still delivered.
func (e *endpoint) Close() error {
	if e.state == epClosed {
		return nil
	}
	e.state = epClosed
	e.detach(ucs.StatusCanceled)
	e.iface.open.Remove(e)
	return nil
}
