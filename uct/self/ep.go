package self

import (
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/internal/memop"
)

// EP is a connection to an iface of the group.
type EP struct {
	peer    *Iface // nil when closed or failed
	iface   *Iface
	pending base.PendingQueue
	failed  bool
	closed  bool
	base.Slot
}

var _ uct.EP = (*EP)(nil)

// Ops implements uct.EP.
func (e *EP) Ops() *uct.Ops { return &uct.Ops{AM: e, Put: e, Get: e, Atomics: e, Check: e} }

// errFailed is the only way in which an EP fails: its peer has closed, in order.
var errFailed error = &ucs.OpError{TL: Name, Dev: DeviceName, Op: "ep",
	Err: fmt.Errorf("%w: %w", uct.ErrEPFailed, ucs.ErrPeerClosed)}

// NewEP implements uct.Iface. Errors: ErrInvalidAddr, ErrUnreachable.
func (it *Iface) NewEP(p uct.EPParams) (uct.EP, error) {
	peer, err := it.peer(p.DeviceAddr, p.IfaceAddr)
	if err == nil && it.closed {
		err = uct.ErrClosed
	}
	if err != nil {
		return nil, &ucs.OpError{TL: Name, Dev: DeviceName, Op: "new ep", Err: err}
	}
	e := &EP{peer: peer, iface: it}
	it.open.Add(e)
	peer.peers[e] = true
	return e, nil
}

// refused says why a post on e is not possible now; nil if it is.
func (e *EP) refused() error {
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
func (e *EP) Check(*uct.Completion) (bool, error) { return false, e.refused() }

// ready is refused in one comparison for the usual case.
func (e *EP) ready() bool { return e.peer != nil && !e.pending.Blocks() }

// AMShort implements uct.AMSender.
func (e *EP) AMShort(id uint8, hdr uint64, payload []byte) error {
	if len(payload) > inlineLen-8 {
		return uct.ErrTooLong
	}
	if id > uct.MaxAMID {
		return uct.ErrInvalidParam
	}
	if !e.ready() {
		return e.refused()
	}
	if !e.peer.rx.pushShort(id, hdr, payload) {
		return uct.ErrNoResource
	}
	if e.peer.armed {
		e.peer.wake()
	}
	return nil
}

// AMBcopy implements uct.AMSender.
func (e *EP) AMBcopy(id uint8, p uct.Packer) (int, error) {
	buf, err := e.segment(id)
	if err != nil {
		return 0, err
	}
	n := p.Pack(buf)
	e.post(id, n)
	return n, nil
}

// AMZcopy implements uct.AMSender. The buffer is free on return.
func (e *EP) AMZcopy(id uint8, hdr []byte, iov []uct.IOV, _ *uct.Completion) (bool, error) {
	am := &e.iface.attr.AM
	if len(hdr) > am.MaxHeader || len(iov) > am.MaxIOV || len(hdr)+uct.IOVLen(iov) > am.MaxZcopy {
		return false, uct.ErrTooLong
	}
	if !memop.Covers(iov) {
		return false, uct.ErrInvalidParam
	}
	buf, err := e.segment(id)
	if err != nil {
		return false, err
	}
	n := copy(buf, hdr)
	n += memop.Gather(buf[n:], iov)
	e.post(id, n)
	return false, nil
}

// segment is the buffer for a message of id.
func (e *EP) segment(id uint8) ([]byte, error) {
	if id > uct.MaxAMID {
		return nil, uct.ErrInvalidParam
	}
	if !e.ready() {
		return nil, e.refused()
	}
	buf := e.peer.rx.take()
	if buf == nil {
		return nil, uct.ErrNoResource
	}
	return buf[:min(len(buf), e.iface.attr.AM.MaxBcopy)], nil
}

func (e *EP) post(id uint8, n int) {
	e.peer.rx.push(id, n)
	if e.peer.armed {
		e.peer.wake()
	}
}

// Flush implements uct.EP.
func (e *EP) Flush(*uct.Completion) (bool, error) {
	if e.failed {
		return false, errFailed
	}
	return false, nil
}

// Fence implements uct.EP.
func (e *EP) Fence() error {
	if e.failed {
		return errFailed
	}
	return nil
}

// AddPending implements uct.EP.
func (e *EP) AddPending(r *uct.PendingReq) error {
	switch {
	case e.closed:
		return uct.ErrClosed
	case e.failed:
		return errFailed
	case e.peer.rx.room() && e.pending.Empty():
		return uct.ErrBusy
	}
	return e.iface.arb.Add(&e.pending, r)
}

// PurgePending implements uct.EP.
func (e *EP) PurgePending(f func(*uct.PendingReq)) { e.iface.arb.Purge(&e.pending, f) }

// fail makes e refuse work, because its peer has closed.
func (e *EP) fail() {
	e.failed = true
	e.peer = nil
	e.iface.failed = append(e.iface.failed, e)
	if e.iface.armed {
		e.iface.wake()
	}
}

// Close implements uct.EP. Messages that were sent stay sent.
func (e *EP) Close() error {
	if e.closed {
		return nil
	}
	e.closed = true
	if e.peer != nil {
		delete(e.peer.peers, e)
		e.peer = nil
	}
	e.iface.open.Remove(e)
	return nil
}
