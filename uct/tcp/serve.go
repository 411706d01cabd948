package tcp

import (
	"encoding/binary"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/targetop"
)

// This file executes the requests of peers. Each access is checked against the memory table of the
// domain.

// inlineGet is the maximum length of a get whose data is copied into the transmit buffer, in bytes.
// The data of larger ones is written from its memory.
const inlineGet = 2 << 10

// servePut receives the data of a put: to the memory if the access is granted, else it is
// discarded.
func (c *conn) servePut(h *header, t target) {
	n := h.n - targetLen
	s := sink{left: n, put: true, ack: h.id == putAck, tag: t.tag}
	if s.mem, s.off = c.it.md.mems.find(t.key, t.addr, n, uct.AccessRemoteWrite); s.mem == nil {
		s.status = ucs.StatusRemoteAccess
	}
	c.moveData(s)
}

// replyPut replies to a put, if the peer requested that or if the access was refused.
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

// reply queues a frame with a body of 0 or 8 bytes. It returns false if there is no room, which
// happens only if the peer exceeds maxReplies.
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

// word encodes v as the body of a frame.
func (it *iface) word(v uint64) []byte {
	binary.LittleEndian.PutUint64(it.scratch[:], v)
	return it.scratch[:]
}

// nak sends a NAK for a refused request of an EP. It sends only one for consecutive refusals,
// because the first one fails the EP.
func (c *conn) nak(st ucs.Status, tag uint32) bool {
	if c.lastNak == uint64(tag)+1 {
		return true
	}
	c.lastNak = uint64(tag) + 1
	return c.reply(frameNak, uint8(st), c.it.word(uint64(tag)))
}

// serveGet queues DATA and DONE.
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

// floodError returns errFlooded if ok is false: there was no room for a reply, because the peer exceeds maxReplies.
func floodError(ok bool) error {
	if ok {
		return nil
	}
	return errFlooded
}

// inlineData replies to a get with a copy of the data, if there is room in the part of the buffer
// for requests.
func (c *conn) inlineData(mem *memory, off, n int) bool {
	whole := frameLen + n + frameLen
	if len(c.tx.buf) <= replyRoom { // it was made for UNUSED
		c.growTx()
	}
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

// serveAtomic executes an atomic operation and replies if it fetches.
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
func (md *domain) apply(t target, a *targetop.Atomic) (old uint64, st ucs.Status) {
	mem, _ := md.mems.find(t.key, t.addr, a.Size, uct.AccessRemoteAtomic)
	if mem == nil || !mem.enter() {
		return 0, ucs.StatusRemoteAccess
	}
	old, st = a.Do(mem.buf, mem.addr)
	mem.exit()
	return old, st
}

// serveFlush replies that all earlier requests are executed.
func (c *conn) serveFlush(sent uint64) error {
	if sent != c.executed {
		return errMalformed
	}
	return floodError(c.reply(frameDone, uint8(ucs.StatusOK), c.it.word(sent)))
}
