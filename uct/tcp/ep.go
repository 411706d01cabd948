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

// EP is an endpoint: a user of the connection to its peer.
type EP struct {
	base.Slot   // in conn.eps
	it          *Iface
	conn        *conn
	state       epState
	tag         uint32
	sent        uint64 // value of conn.sent after the last request of this EP
	parts       int    // parts of striped puts in flight
	postAfter   uint64 // requests that must be known as executed before the next is posted,
	stripeAfter uint64 // and before one is posted on another connection
	pending     base.PendingQueue
	peerName    string // EPParams.Peer.Name
	err         error  // what operations return once it has failed or is closed
	status      ucs.Status
	base.NoGetShort
	_ uint8 // keeps the empty struct from padding the end
}

var _ uct.EP = (*EP)(nil)

// Ops implements uct.EP.
func (e *EP) Ops() *uct.Ops { return &uct.Ops{AM: e, Put: e, Get: e, Atomics: e, Check: e} }

// ready returns nil if a request may be posted now as far as the EP is concerned.
func (e *EP) ready() error {
	if e.state == epReady && !e.pending.Blocks() && e.postAfter <= e.conn.acked {
		return nil
	}
	return e.refuse()
}

//go:noinline
func (e *EP) refuse() error {
	if e.state != epReady {
		return e.err
	}
	return uct.ErrNoResource
}

// take returns place for a request of n bytes. It becomes part of the queue by
// posted, and nothing else may be taken before.
func (e *EP) reserve(n int) ([]byte, error) {
	if err := e.ready(); err != nil {
		return nil, err
	}
	if b := e.conn.tx.reserve(n); b != nil {
		return b, nil
	}
	return e.reserveSlow(n)
}

//go:noinline
func (e *EP) reserveSlow(n int) ([]byte, error) {
	c := e.conn
	if c.state == connIdle {
		c.start()
	}
	if b := c.makeRoom(n); b != nil {
		return b, nil
	}
	return nil, uct.ErrNoResource
}

// posted books n bytes that take returned as one request.
func (e *EP) commit(n int) {
	c := e.conn
	c.sent++
	e.sent = c.sent
	c.commit(n)
}

// setFailed puts the EP out of use, and reports whether it was not.
func (e *EP) setFailed(reason error, st ucs.Status) bool {
	if e.state != epReady {
		return false
	}
	e.state, e.status = epFailed, st
	e.err = e.it.opError("ep to "+e.conn.addr.String(), fmt.Errorf("%w: %w", uct.ErrEPFailed, reason))
	return true
}

// tellFailed calls OnError, unless the EP was closed since setFailed.
func (e *EP) reportFailed() {
	e.it.freed = true
	if e.state == epFailed {
		e.it.onError(e, e.err)
	}
}

// refusedByPeer is called by Progress when the peer refused a request of the EP, which fails
// by that.
func (e *EP) remoteError(st ucs.Status) {
	if e.setFailed(st.Err(), st) {
		e.reportFailed()
	}
}

// Fence implements uct.EP. The peer executes requests in order, but may read the
// data of a get later, and parts of a striped put come on other connections: what
// follows a fence is not posted before those are over, and a put is not striped
// before everything that the fence covers is executed.
func (e *EP) Fence() error {
	if e.state != epReady {
		return e.err
	}
	e.setFence()
	return nil
}

// Close implements uct.EP. Bytes of zero-copy sends that are not written yet are
// copied, so that the buffers are the caller's again and the peer loses nothing.
func (e *EP) Close() error {
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
	return nil
}

// detach completes what e has in flight as canceled, and lets go of its buffers.
func (it *Iface) cancelOps(c *conn, e *EP) {
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

// detach makes o forget its caller and returns its completion, which may be nil.
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

// tagPlaceBits are the bits of the place in an EP's tag, the number that peers know
// it by. A tag need not be hard to guess, as it names an EP only among those of the connection
// over which it comes (takeNak).
const tagPlaceBits = 20
