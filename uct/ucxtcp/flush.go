package ucxtcp

import (
	"encoding/binary"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Flush implements uct.EP. As in UCX, it sends an empty put after the messages, which the peer
// acknowledges.
func (e *EP) Flush(c *uct.Completion) (bool, error) {
	if e.state != epReady {
		return false, e.err
	}
	if !e.busy() {
		return false, nil
	}
	err := e.requestFlush(c)
	return err == nil, err
}

// Check implements uct.Checker. It sends an empty put, which the peer's process acknowledges.
func (e *EP) Check(c *uct.Completion) (bool, error) {
	switch {
	case e.state != epReady:
		return false, e.err
	case !e.sends:
		e.start()
		return false, uct.ErrNoResource
	}
	if !e.busy() {
		e.unflushed = true
	}
	err := e.requestFlush(c)
	return err == nil, err
}

// KeepAlive sends a frame that the peer ignores, so that the kernel detects a dead host. Errors:
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

// busy reports whether the peer has not acknowledged all messages.
func (e *EP) busy() bool { return e.unflushed || e.puts != e.putsAcked }

// requestFlush sends an empty put if messages were sent after the last one, and completes comp when
// the put is acknowledged. comp may be nil.
func (e *EP) requestFlush(comp *uct.Completion) error {
	const whole = frameLen + putLen
	if comp != nil && e.it.ops.left == 0 {
		return uct.ErrNoResource
	}
	if e.unflushed {
		b := e.reservePut()
		if b == nil {
			return uct.ErrNoResource
		}
		putFrame(b, idPut, putLen)
		binary.LittleEndian.PutUint64(b[frameLen+offPutAddr:], 0)
		binary.LittleEndian.PutUint64(b[frameLen+offPutLen:], 0)
		binary.LittleEndian.PutUint32(b[frameLen+offPutSN:], e.puts)
		e.puts++
		e.commit(whole)
		e.unflushed = false
	}
	if comp != nil {
		o := e.it.ops.get()
		o.ep, o.comp, o.sn = e, comp, e.puts
		e.flushes.push(o)
	}
	return nil
}

// reservePut reserves an empty put, also if requests are pending; nil if there is no room.
func (e *EP) reservePut() []byte {
	const whole = frameLen + putLen
	if e.sends {
		if b := e.conn.tx.reserve(whole); b != nil {
			return b
		}
		return e.conn.makeTxRoom(whole)
	}
	if e.start(); !e.hasEarlyRoom(whole) {
		return nil
	}
	return e.early[e.earlyLen : e.earlyLen+whole]
}

// handlePut handles a put of the peer. Only an empty put, which is a flush, is accepted.
func (c *Conn) handlePut(b []byte) error {
	if binary.LittleEndian.Uint64(b[offPutLen:]) != 0 {
		return errPut
	}
	c.putNumber = binary.LittleEndian.Uint32(b[offPutSN:])
	c.due |= duePutAck
	c.markDirty()
	return nil
}

// handlePutAck completes the flushes that the peer has acknowledged.
func (c *Conn) handlePutAck(b []byte) error {
	e := c.ep
	if e == nil {
		return nil
	}
	acked := binary.LittleEndian.Uint32(b) + 1
	if n := acked - e.putsAcked; n == 0 || n > e.puts-e.putsAcked {
		return errInvalidEvent
	}
	e.putsAcked = acked
	for o := e.flushes.first; o != nil && int32(acked-o.sn) >= 0; o = e.flushes.first {
		e.flushes.pop()
		c.it.complete(o, ucs.StatusOK)
	}
	return nil
}

// Flush implements uct.Iface.
func (it *Iface) Flush(c *uct.Completion) (bool, error) {
	busy := 0
	for _, e := range it.eps.All() {
		if e.state != epReady || !e.busy() {
			continue
		}
		if e.unflushed && e.reservePut() == nil {
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
		if e.state == epReady && e.busy() {
			_ = e.requestFlush(g) // cannot fail: the first loop has checked the resources
		}
	}
	return true, nil
}

// Fence implements uct.Iface.
func (it *Iface) Fence() error { return nil }
