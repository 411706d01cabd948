package tcp

import (
	"encoding/binary"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/targetop"
)

// This file executes what peers ask for. Whatever they name is checked against
// the table of the memory domain at that moment.

// inlineGet is up to how many bytes the data of a get is copied behind its
// header instead of being written from its place.
const inlineGet = 2 << 10

// servePut takes the data of a put: into memory if that is allowed, else nowhere.
func (c *conn) servePut(h *header, t target) {
	n := h.n - targetLen
	s := sink{left: n, put: true, ack: h.id == putAck, tag: t.tag}
	if s.mem, s.off = c.it.md.mems.find(t.key, t.addr, n, uct.AccessRemoteWrite); s.mem == nil {
		s.status = ucs.StatusRemoteAccess
	}
	c.moveData(s)
}

// answerPut says how a put ended, if that was asked for or if it was refused.
func (c *conn) replyPut(st ucs.Status, ack bool, tag uint32) {
	ok := true
	switch {
	case ack:
		ok = c.reply(frameDone, uint8(st), nil)
	case st != ucs.StatusOK:
		ok = c.nak(st, tag)
	}
	if !ok {
		c.malformed(errFlooded)
	}
}

// answer queues a frame with a body of 0 or 8 bytes; false if there is no room,
// which a peer that keeps to the limits cannot bring about.
func (c *conn) reply(kind, id uint8, body []byte) bool {
	b := c.reserveReply(frameLen + len(body))
	if b == nil {
		return false
	}
	putHeader(b, kind, id, len(body))
	copy(b[frameLen:], body)
	c.markDirty()
	return true
}

// word encodes v for a body.
func (it *Iface) word(v uint64) []byte {
	binary.LittleEndian.PutUint64(it.scratch[:], v)
	return it.scratch[:]
}

// nak tells the sender that a request of one of its EPs was refused; once in a
// row, as the EP has failed by that.
func (c *conn) nak(st ucs.Status, tag uint32) bool {
	if c.lastNak == uint64(tag)+1 {
		return true
	}
	c.lastNak = uint64(tag) + 1
	return c.reply(frameNak, uint8(st), c.it.word(uint64(tag)))
}

// serveGet queues the data, and a DONE.
func (c *conn) serveGet(t target, length uint64) error {
	if length == 0 || length > maxRMA {
		return errMalformed
	}
	n := int(length)
	mem, off := c.it.md.mems.find(t.key, t.addr, n, uct.AccessRemoteRead)
	if mem == nil {
		return floodError(c.reply(frameDone, uint8(ucs.StatusRemoteAccess), nil))
	}
	if n <= inlineGet && c.inlineData(mem, off, n) {
		return nil
	}
	b := c.reserveReply(frameLen)
	if b == nil {
		return errFlooded
	}
	putHeader(b, frameData, 0, n)
	if !c.tx.addExtent(extent{mem: mem, off: off, n: n}) {
		return errFlooded
	}
	return floodError(c.reply(frameDone, uint8(ucs.StatusOK), nil))
}

func floodError(ok bool) error {
	if ok {
		return nil
	}
	return errFlooded
}

// inlineData answers a get by a copy if there is room for requests to spare.
func (c *conn) inlineData(mem *Mem, off, n int) bool {
	whole := frameLen + n + frameLen
	b := c.tx.reserve(whole)
	if b == nil {
		return false
	}
	if !mem.enter() {
		return false
	}
	putHeader(b, frameData, 0, n)
	copy(b[frameLen:], mem.buf[off:off+n])
	mem.exit()
	putHeader(b[frameLen+n:], frameDone, uint8(ucs.StatusOK), 0)
	c.tx.tail += whole
	c.tx.posts++
	c.markDirty()
	return true
}

// serveAtomic executes an atomic operation and answers if it fetches.
func (c *conn) serveAtomic(op uct.AtomicOp, body []byte) error {
	t, fetch := parseTarget(body), body[offFetch]
	a := targetop.Atomic{
		Op: op, Size: int(body[offSize]), Raddr: t.addr,
		Value: binary.LittleEndian.Uint64(body[offValue:]), Compare: binary.LittleEndian.Uint64(body[offCompare:]),
	}
	if !a.Valid() || fetch > 1 || fetch == 0 && op == uct.AtomicCSwap {
		return errMalformed
	}
	old, st := c.it.md.apply(t, &a)
	switch {
	case fetch == 1 && st == ucs.StatusOK:
		return floodError(c.reply(frameDone, uint8(st), c.it.word(old)))
	case fetch == 1:
		return floodError(c.reply(frameDone, uint8(st), nil))
	case st != ucs.StatusOK:
		return floodError(c.nak(st, t.tag))
	}
	return nil
}

// apply executes an atomic operation on registered memory.
func (md *MD) apply(t target, a *targetop.Atomic) (old uint64, st ucs.Status) {
	mem, _ := md.mems.find(t.key, t.addr, a.Size, uct.AccessRemoteAtomic)
	if mem == nil || !mem.enter() {
		return 0, ucs.StatusRemoteAccess
	}
	old, st = a.Do(mem.buf, mem.addr)
	mem.exit()
	return old, st
}

// serveFlush answers that everything before was executed.
func (c *conn) serveFlush(sent uint64) error {
	if sent != c.executed {
		return errMalformed
	}
	return floodError(c.reply(frameDone, uint8(ucs.StatusOK), c.it.word(sent)))
}
