package tcp

import (
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
)

type epState uint8

const (
	epReady epState = iota
	epFailed
	epClosed
)

// endpoint is a uct.EP. It uses the connection to its peer together with other EPs.
type endpoint struct {
	base.Slot   // in conn.eps
	it          *iface
	conn        *conn
	state       epState
	tag         uint32
	sent        uint64 // value of conn.sent after the last request of this EP
	parts       int    // number of parts of striped puts in flight
	postAfter   uint64 // a post must wait until conn.acked has this value
	stripeAfter uint64 // a put is not striped until conn.acked has this value
	pending     base.PendingQueue
	peerName    string // EPParams.Peer.Name
	err         error  // error of all operations after the EP has failed or is closed
	status      ucs.Status
	base.NoGetShort
	_ uint8 // avoids the padding that an empty struct at the end would add
}

var _ uct.EP = (*endpoint)(nil)

// Ops implements uct.EP.
func (e *endpoint) Ops() *uct.Ops { return &uct.Ops{AM: e, Put: e, Get: e, Atomics: e, Check: e} }

// ready returns nil if the state of the EP permits a post now. It does not check for resources.
func (e *endpoint) ready() error {
	if e.state == epReady && !e.pending.Blocks() && e.postAfter <= e.conn.acked {
		return nil
	}
	return e.postError()
}

// postError returns the error of a post that is not possible now: ErrNoResource, or the error of a failed or closed EP.
//
//go:noinline
func (e *endpoint) postError() error {
	if e.state != epReady {
		return e.err
	}
	return uct.ErrNoResource
}

// reserve returns n bytes of the transmit buffer for a request, which commit queues. At most one
// reservation can be open.
func (e *endpoint) reserve(n int) ([]byte, error) {
	if err := e.ready(); err != nil {
		return nil, err
	}
	if b := e.conn.tx.reserve(n); b != nil {
		return b, nil
	}
	return e.reserveSlow(n)
}

//go:noinline
func (e *endpoint) reserveSlow(n int) ([]byte, error) {
	c := e.conn
	if c.state == connIdle {
		c.start()
	}
	if b := c.makeRoom(n); b != nil {
		return b, nil
	}
	return nil, uct.ErrNoResource
}

// commit queues the request in the n bytes that reserve returned.
func (e *endpoint) commit(n int) {
	c := e.conn
	c.sent++
	e.sent = c.sent
	c.commit(n)
}

// setFailed sets the EP to failed. It reports false if the EP was failed or closed before.
func (e *endpoint) setFailed(reason error, st ucs.Status) bool {
	if e.state != epReady {
		return false
	}
	e.state, e.status = epFailed, st
	e.err = e.it.opError("ep to "+e.conn.addr.String(), fmt.Errorf("%w: %w", uct.ErrEPFailed, reason))
	return true
}

// reportFailed calls OnError, unless the EP was closed after setFailed.
func (e *endpoint) reportFailed() {
	e.it.freed = true
	if e.state == epFailed {
		e.it.onError(e, e.err)
	}
}

// remoteError fails the EP because the peer has refused one of its requests. Progress calls it.
func (e *endpoint) remoteError(st ucs.Status) {
	if e.setFailed(st.Err(), st) {
		e.reportFailed()
	}
}

// Fence implements uct.EP. The peer executes the requests of a connection in order, with two
// exceptions: it may read the data of a get later, and parts of a striped put arrive over other
// connections. So posts after a fence wait for these operations, and a put after a fence is not
// striped until all operations before the fence are executed.
func (e *endpoint) Fence() error {
	if e.state != epReady {
		return e.err
	}
	e.setFence()
	return nil
}

// Close implements uct.EP. It copies the unwritten bytes of zcopy sends, so that the caller may
// reuse its buffers and the peer still receives the data.
func (e *endpoint) Close() error {
	if e.state == epClosed {
		return nil
	}
	c, it := e.conn, e.it
	if e.state == epReady {
		e.err = it.opError("ep", uct.ErrClosed)
	}
	e.state = epClosed
	it.tags.Remove(uint64(e.tag))
	it.arb.Purge(&e.pending, func(*uct.PendingReq) {})
	c.eps.Remove(e)
	it.cancelOps(c, e)
	for _, r := range c.rails {
		if r != nil {
			it.cancelOps(r, e)
		}
	}
	if c.state == connIdle && c.eps.Len() == 0 {
		it.removeConn(c)
		c.state = connGone
	}
	c.startCloseTimer()
	return nil
}

// cancelOps completes the operations of e on c with StatusCanceled and stops using their buffers.
func (it *iface) cancelOps(c *conn, e *endpoint) {
	var comps []*uct.Completion
	cancel := func(o *op) {
		if o.ep == e {
			if comp := o.detach(); comp != nil {
				comps = append(comps, comp)
			}
		}
	}
	for i := c.tx.first; i != c.tx.after; i++ {
		if o := c.tx.ext[i%extentRing].op; o != nil {
			cancel(o)
		}
	}
	for o := c.awaitingReply.first; o != nil; o = o.next {
		cancel(o)
	}
	for o := it.written.first; o != nil; o = o.next {
		cancel(o)
	}
	for _, comp := range comps {
		comp.Complete(ucs.StatusCanceled)
	}
}

// detach removes the EP, the completion and the buffers of the caller from o. It returns the
// completion, which may be nil.
func (o *op) detach() *uct.Completion {
	comp := o.comp
	o.ep, o.comp, o.result = nil, nil, nil
	for i := o.cur; i < o.count; i++ {
		if o.kind == opGet {
			o.pieces[i] = make([]byte, len(o.pieces[i]))
		} else {
			o.pieces[i] = append([]byte(nil), o.pieces[i]...)
		}
	}
	return comp
}

// tagPlaceBits is the number of index bits in an EP's tag, by which peers refer to the EP. A tag
// need not be unpredictable, because it selects only among the EPs of the connection over which it
// arrives (handleNak).
const tagPlaceBits = 20
