package tcp

import (
	"errors"
	"fmt"
	"math"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Rails are further connections to a peer. They carry only parts of large puts, each with a reply;
// all requests whose order matters use the first connection. The side that posts the first large
// put dials them, and puts use those that are open. A side that does not trust the addresses of its
// peer dials no rails; then the peer dials them at once (uct.DialNow).

// newRail makes the rail with this index.
func (c *conn) newRail(number uint32) *conn {
	if c.rails == nil {
		c.rails = make([]*conn, c.it.cfg.ConnsPerPeer-1)
	}
	r := &conn{it: c.it, key: c.key, secret: c.secret, path: c.path, rail: number, main: c, link: link{fd: -1}}
	c.rails[number-1] = r
	c.it.addConn(r)
	return r
}

// railAt returns the rail with this index, which is below ConnsPerPeer; nil if there is none.
func (c *conn) railAt(number uint32) *conn {
	if c.rails == nil {
		return nil
	}
	return c.rails[number-1]
}

// dialRails dials all rails, once: if the peer refuses them, they are not dialed again. A
// connection to the own iface has no rails.
func (c *conn) dialRails() {
	if c.railsDialed || c.it.cfg.ConnsPerPeer == 1 || c.key == c.it.addr.key || !c.path.isKnown() {
		return
	}
	c.railsDialed = true
	for i := 1; i < c.it.cfg.ConnsPerPeer; i++ {
		r := c.railAt(uint32(i))
		if r == nil {
			r = c.newRail(uint32(i))
		}
		r.start()
	}
}

var errRailLost = errors.New("a rail has failed")

// railFailed removes a rail. If it had outstanding operations, the first connection fails too.
func (c *conn) railFailed(r *conn, open bool) {
	if c.railAt(r.rail) == r {
		c.rails[r.rail-1] = nil
	}
	if open && r.awaitingReply.n > 0 {
		c.fail(fmt.Errorf("%w: %w", errRailLost, r.err))
	}
}

// stripeConns returns the connections for a large put: the first, and the rails that are open and
// have resources. The slice is valid until the next call. Parts on rails may overtake requests on
// the first connection. So after a fence only the first connection is used until the requests
// before the fence are executed.
func (e *endpoint) stripeConns() []*conn {
	c := e.conn
	if c.state != connOpen || e.stripeAfter > c.acked {
		return nil
	}
	c.dialRails()
	conns := append(e.it.stripeConns[:0], c)
	for _, r := range c.rails {
		if r != nil && len(conns) < e.it.ops.left && r.canPostPart() {
			conns = append(conns, r)
		}
	}
	return conns
}

// canPostPart reports whether a rail has resources for a part of a put.
func (c *conn) canPostPart() bool {
	return c.state == connOpen && c.awaitingReply.n < maxReplies && c.tx.hasExtentRoom() &&
		c.makeRoom(frameLen+targetLen) != nil && c.state == connOpen // makeRoom may have failed the connection
}

// stripeAlign is the length of a cache line. All parts of a put but the last are multiples of it.
const stripeAlign = 64

// putStriped posts a put in parts, one on each of conns, or nothing. conns[0] is the connection of
// the EP; the caller has checked its ops and extents.
func (e *endpoint) putStriped(conns []*conn, iov []uct.IOV, n int, raddr uint64, key uct.RKey, comp *uct.Completion) (bool, error) {
	t, ok := e.target(raddr, key)
	if !ok {
		return false, ucs.ErrRemoteAccess
	}
	if err := e.ready(); err != nil {
		return false, err
	}
	part := (n/len(conns) + stripeAlign) &^ (stripeAlign - 1)
	conns = conns[:(n+part-1)/part]
	if e.conn.makeRoom(frameLen+targetLen) == nil {
		return false, uct.ErrNoResource
	}
	if comp != nil {
		comp = e.it.groups.Get(comp, len(conns))
	}
	for i, k := range conns {
		off := i * part
		at := t
		at.addr += uint64(off)
		e.putPart(k, iov, off, min(part, n-off), at, comp)
	}
	return true, nil
}

// putPart posts n bytes of iov from off as a put on k, which has the resources.
func (e *endpoint) putPart(k *conn, iov []uct.IOV, off, n int, t target, comp *uct.Completion) {
	b := k.tx.reserve(frameLen + targetLen)
	putHeader(b, framePut, putAck, targetLen+n)
	putTarget(b[frameLen:], t)
	count := sliceIOV(&e.it.partIOV, iov, off, n)
	o := k.postZcopy(e, b, e.it.partIOV[:count], opPut, comp)
	clear(e.it.partIOV[:count])
	o.stripe = true
	e.parts++
	k.awaitingReply.push(o)
}

// sliceIOV sets dst to n bytes of iov from off and returns the number of its elements.
func sliceIOV(dst *[maxIOV]uct.IOV, iov []uct.IOV, off, n int) (count int) {
	for i := range iov {
		b := iov[i].Buf
		if off >= len(b) {
			off -= len(b)
			continue
		}
		b = b[off:]
		b = b[:min(len(b), n)]
		off, n = 0, n-len(b)
		if len(b) == 0 {
			break
		}
		dst[count] = uct.IOV{Buf: b, Mem: iov[i].Mem}
		count++
	}
	return count
}

// afterStripes as EP.postAfter makes posts wait until all parts of striped puts have completed.
const afterStripes = math.MaxUint64

// fencedAfter returns the value of EP.postAfter for posts after a fence: they wait for the last get, and for the decision
// whether the connection is closed.
func (c *conn) fencedAfter() uint64 {
	if c.closing != closeNone {
		return afterDecision
	}
	return c.lastGet
}

// setFence makes later posts wait for operations that may take effect out of order. It also
// disables striping until all earlier operations are executed.
func (e *endpoint) setFence() {
	e.stripeAfter = e.sent
	e.postAfter = e.conn.fencedAfter()
	if e.parts > 0 {
		e.postAfter = afterStripes
	}
}

// partCompleted handles the completion of a part.
func (e *endpoint) partCompleted() {
	e.parts--
	if e.parts == 0 && e.postAfter == afterStripes {
		e.postAfter = e.conn.fencedAfter()
	}
}

// flushStriped is Flush while parts of puts are in flight.
func (e *endpoint) flushStriped(c *uct.Completion) (bool, error) {
	if c == nil {
		return true, nil // the parts have replies; the next Flush handles the rest
	}
	conns := append(e.it.stripeConns[:0], e.conn)
	for _, r := range e.conn.rails {
		if r != nil {
			conns = append(conns, r)
		}
	}
	return e.it.flushAll(conns, e, c)
}
