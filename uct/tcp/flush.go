package tcp

import (
	"encoding/binary"

	"github.com/gucx/gucx/uct"
)

// Flush implements uct.EP.
func (e *EP) Flush(c *uct.Completion) (bool, error) {
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

// Check implements uct.Checker: the peer's process answers a flush of nothing.
func (e *EP) Check(c *uct.Completion) (bool, error) {
	if e.state != epReady || e.parts > 0 || e.sent > e.conn.acked {
		return e.Flush(c)
	}
	if e.conn.state == connIdle {
		e.conn.start()
	}
	err := e.conn.requestFlush(e, c)
	return err == nil, err
}

// requestFlush has the peer tell when everything sent so far is executed. e may
// be nil.
func (c *conn) requestFlush(e *EP, comp *uct.Completion) error {
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
func (it *Iface) Flush(c *uct.Completion) (bool, error) {
	// What is written here may show that a connection is broken, which takes it out of
	// known.
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

// countBusy is the number of connections with requests of which it is not known
// that they were executed.
func countBusy(all []*conn) (n int) {
	for _, k := range all {
		if k.sent > k.acked {
			n++
		}
	}
	return n
}

// flushPoll sees to it that every connection is told when everything sent is executed.
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

// flushAll asks on every busy connection of all, or on none, for e, which may be
// nil.
func (it *Iface) flushAll(all []*conn, e *EP, c *uct.Completion) (bool, error) {
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
			_ = k.requestFlush(e, g) // it has been made sure that there is room
		}
	}
	return true, nil
}

// Fence implements uct.Iface.
func (it *Iface) Fence() error {
	for _, k := range it.known.All() {
		for _, e := range k.eps.All() {
			if e.state == epReady {
				e.setFence()
			}
		}
	}
	return nil
}
