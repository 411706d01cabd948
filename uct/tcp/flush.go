package tcp

import (
	"encoding/binary"

	"github.com/gucx/gucx/uct"
)

// Flush implements uct.EP.
func (e *endpoint) Flush(c *uct.Completion) (bool, error) {
	if e.state != epReady {
		return false, e.err
	}
	if e.parts > 0 {
		return e.flushStriped(c)
	}
	if e.sent <= e.conn.acked {
		return false, nil
	}
	if c == nil {
		if last := e.conn.awaitingReply.last; last != nil && last.kind == opFlush && last.seq >= e.sent {
			return true, nil
		}
	}
	err := e.conn.requestFlush(e, c)
	return err == nil, err
}

// Check implements uct.Checker. If nothing is outstanding, it sends a FLUSH to which the peer's
// process replies.
func (e *endpoint) Check(c *uct.Completion) (bool, error) {
	if e.state != epReady || e.parts > 0 || e.sent > e.conn.acked {
		return e.Flush(c)
	}
	if e.conn.state == connIdle {
		e.conn.start()
	}
	if e.conn.closing != closeNone {
		return false, uct.ErrNoResource
	}
	err := e.conn.requestFlush(e, c)
	return err == nil, err
}

// requestFlush sends a FLUSH. The peer replies when it has executed all requests before it. e may
// be nil.
func (c *conn) requestFlush(e *endpoint, comp *uct.Completion) error {
	const whole = frameLen + flushLen
	it := c.it
	if it.ops.left == 0 || c.awaitingReply.n >= maxReplies {
		return uct.ErrNoResource
	}
	b := c.tx.reserve(whole)
	if b == nil {
		if b = c.makeRoom(whole); b == nil {
			return uct.ErrNoResource
		}
	}
	putHeader(b, frameFlush, 0, flushLen)
	binary.LittleEndian.PutUint64(b[frameLen:], c.sent)
	o := it.ops.get()
	o.ep, o.comp, o.kind, o.seq = e, comp, opFlush, c.sent
	c.awaitingReply.push(o)
	c.commit(whole)
	return nil
}

// Flush implements uct.Iface.
func (it *iface) Flush(c *uct.Completion) (bool, error) {
	// A write may find that a connection is broken, which removes it from known.
	it.flushing = append(it.flushing[:0], it.known.All()...)
	all := it.flushing
	pending, err := countBusy(all) > 0, error(nil)
	switch {
	case pending && c == nil:
		err = requestFlushes(all)
	case pending:
		pending, err = it.flushAll(all, nil, c)
	}
	clear(all)
	return pending, err
}

// countBusy returns the number of connections with requests of which the execution is not
// confirmed.
func countBusy(all []*conn) (n int) {
	for _, k := range all {
		if k.sent > k.acked {
			n++
		}
	}
	return n
}

// requestFlushes sends a FLUSH on each connection that has outstanding requests and no FLUSH after
// them.
func requestFlushes(all []*conn) error {
	for _, k := range all {
		last := k.awaitingReply.last
		if k.sent == k.acked || last != nil && last.kind == opFlush && last.seq == k.sent {
			continue
		}
		if err := k.requestFlush(nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// flushAll sends a FLUSH on every busy connection of all, or on none. e may be nil.
func (it *iface) flushAll(all []*conn, e *endpoint, c *uct.Completion) (bool, error) {
	busy := countBusy(all)
	if it.ops.left < busy {
		return false, uct.ErrNoResource
	}
	for _, k := range all {
		if k.sent > k.acked && (k.awaitingReply.n >= maxReplies || k.makeRoom(frameLen+flushLen) == nil) {
			return false, uct.ErrNoResource
		}
	}
	g := it.groups.Get(c, busy)
	for _, k := range all {
		if k.sent > k.acked {
			_ = k.requestFlush(e, g) // cannot fail: the loop above has checked the resources
		}
	}
	return true, nil
}

// Fence implements uct.Iface.
func (it *iface) Fence() error {
	for _, k := range it.known.All() {
		for _, e := range k.eps.All() {
			if e.state == epReady {
				e.setFence()
			}
		}
	}
	return nil
}
