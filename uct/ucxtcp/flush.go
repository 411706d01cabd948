package ucxtcp

import (
	"encoding/binary"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Flush implements uct.EP. As in UCX, the peer acknowledges an empty put, which follows the messages.
func (e *EP) Flush(c *uct.Completion) (bool, error) {
	if e.state != epReady {
		return false, e.err
	}
	if e.conn == nil || !e.conn.busy() {
		return false, nil
	}
	err := e.conn.requestFlush(e, c)
	return err == nil, err
}

// Check implements uct.Checker: the peer's process acknowledges an empty put.
func (e *EP) Check(c *uct.Completion) (bool, error) {
	switch {
	case e.state != epReady:
		return false, e.err
	case !e.sends:
		e.start()
		return false, uct.ErrNoResource
	}
	if !e.conn.busy() {
		e.conn.unflushed = true
	}
	err := e.conn.requestFlush(e, c)
	return err == nil, err
}

// KeepAlive sends a frame that the peer ignores, so that the kernel notices when its host is gone. Errors:
// ErrNoResource while the EP is not connected, ErrEPFailed.
func (e *EP) KeepAlive() error {
	switch {
	case e.state != epReady:
		return e.err
	case !e.sends:
		e.start()
		return uct.ErrNoResource
	}
	e.conn.due |= dueKeepAlive
	e.conn.markDirty()
	return nil
}

// busy reports whether there are messages of which it is not known that the peer has handled them.
func (c *Conn) busy() bool { return c.unflushed || c.puts != c.putsAcked }

// requestFlush sends an empty put if messages were sent since the last one, and completes comp when it is
// acknowledged. e and comp may be nil.
func (c *Conn) requestFlush(e *EP, comp *uct.Completion) error {
	const whole = frameLen + putLen
	if comp != nil && c.it.ops.left == 0 {
		return uct.ErrNoResource
	}
	if c.unflushed {
		b := c.tx.take(whole)
		if b == nil {
			if b = c.room(whole); b == nil {
				return uct.ErrNoResource
			}
		}
		putFrame(b, idPut, putLen)
		binary.LittleEndian.PutUint64(b[frameLen+offPutAddr:], 0)
		binary.LittleEndian.PutUint64(b[frameLen+offPutLen:], 0)
		binary.LittleEndian.PutUint32(b[frameLen+offPutSN:], c.puts)
		c.puts++
		c.posted(whole)
		c.unflushed = false
	}
	if comp != nil {
		o := c.it.ops.take()
		o.ep, o.comp, o.sn = e, comp, c.puts
		c.flushes.push(o)
	}
	return nil
}

// takePut handles a put of the peer: only an empty one, which is a flush, is accepted.
func (c *Conn) takePut(b []byte) error {
	if binary.LittleEndian.Uint64(b[offPutLen:]) != 0 {
		return errPut
	}
	c.putNumber = binary.LittleEndian.Uint32(b[offPutSN:])
	c.due |= duePutAck
	c.markDirty()
	return nil
}

// takePutAck completes the flushes that the peer has acknowledged.
func (c *Conn) takePutAck(b []byte) error {
	acked := binary.LittleEndian.Uint32(b) + 1
	if n := acked - c.putsAcked; n == 0 || n > c.puts-c.putsAcked {
		return errUnasked
	}
	c.putsAcked = acked
	for o := c.flushes.first; o != nil && int32(acked-o.sn) >= 0; o = c.flushes.first {
		c.flushes.pop()
		c.it.complete(o, ucs.StatusOK)
	}
	return nil
}

// Flush implements uct.Iface.
func (it *Iface) Flush(c *uct.Completion) (bool, error) {
	busy := 0
	for _, e := range it.eps.All() {
		if e.state != epReady || e.conn == nil || !e.conn.busy() {
			continue
		}
		if e.conn.unflushed && e.conn.room(frameLen+putLen) == nil && e.state == epReady {
			return false, uct.ErrNoResource
		}
		busy++
	}
	if busy == 0 {
		return false, nil
	}
	var g *uct.Completion
	if c != nil {
		if it.ops.left < busy {
			return false, uct.ErrNoResource
		}
		g = it.groups.Get(c, busy)
	}
	for _, e := range it.eps.All() {
		if e.state == epReady && e.conn != nil && e.conn.busy() {
			_ = e.conn.requestFlush(e, g) // there is room
		}
	}
	return true, nil
}

// Fence implements uct.Iface.
func (it *Iface) Fence() error { return nil }
