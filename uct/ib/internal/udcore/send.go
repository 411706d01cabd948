package udcore

import (
	"github.com/gucx/gucx/uct/ib/internal/dgram"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// push queues a packet of c and sends as many as possible. The first packet of a connection sends a
// connection request.
func (it *Iface) push(c *conn, p *packet) {
	c.proto.Push()
	if c.tail == nil {
		c.head = p
	} else {
		c.tail.next = p
	}
	c.tail = p
	if c.unsent == nil {
		c.unsent = p
	}
	it.active.Add(c)
	if c.proto.Start() {
		it.sendCreq(c)
		return
	}
	it.transmit(c)
}

// transmit sends packets of c while its window and the send queue permit.
func (it *Iface) transmit(c *conn) {
	for c.proto.Sendable() {
		if it.pi-it.ci >= it.dataRoom {
			it.stall(c)
			return
		}
		p := c.unsent
		c.unsent = p.next
		it.sendPacket(c, p)
	}
}

// hasSlot reports whether the send queue has room for a datagram.
func (it *Iface) hasSlot() bool { return it.pi-it.ci < uint64(it.cfg.TxDepth) }

// stall adds c to the connections for whose packets the send queue had no room.
func (it *Iface) stall(c *conn) {
	it.dataRoom = 0
	if c.waiting {
		return
	}
	c.waiting = true
	if it.stalled == nil {
		it.stalled = c
	} else {
		it.lastStalled.nextTx = c
	}
	it.lastStalled = c
}

// resume sends packets of stalled connections, the oldest first, until the send queue is full.
// Other connections wait behind them.
func (it *Iface) resume() {
	for it.stalled != nil && it.hasSlot() {
		c := it.stalled
		it.stalled = c.nextTx
		c.nextTx, c.waiting = nil, false
		it.dataRoom = uint64(it.cfg.TxDepth)
		it.transmit(c)
	}
}

// sendPacket posts p, the next packet of c. Datagrams that the device reads from memory are
// signaled, so that the memory can be used again.
func (it *Iface) sendPacket(c *conn, p *packet) {
	buf := it.pool.Bytes(p.buf)
	c.proto.Header(p.amID).Put(buf)
	wr := it.address(c)
	if p.z == nil && p.n <= int(it.cfg.TxMaxInline) {
		wr.Flags = verbs.SendInline
		wr.Inline = buf[:p.n]
		it.post()
		return
	}
	it.sges = append(it.sges[:0], it.pool.SGE(p.buf, 0, p.n))
	if p.z != nil {
		it.sges = append(it.sges, p.z.sges[:p.z.n]...)
	}
	wr.Flags = verbs.SendSignaled
	wr.SGList = it.sges
	it.post()
	p.lastSN = it.pi
}

// address prepares the work request for a datagram to c's peer.
func (it *Iface) address(c *conn) *verbs.SendWR {
	wr := &it.wr[0]
	*wr = verbs.SendWR{
		Opcode: verbs.OpSend, AH: c.peer.ah, RemoteQPN: c.peer.key.qpn, RemoteQKey: queueKey,
	}
	return wr
}

// post posts the work request in it.wr. An error is an error of the QP: Progress fails the
// connections.
func (it *Iface) post() {
	if it.pi == it.ci || it.pi-it.sig >= uint64(it.cfg.Moderation) || it.closed {
		it.wr[0].Flags |= verbs.SendSignaled
	}
	if _, err := it.send.PostSend(it.setID()); err != nil {
		it.pi--
		it.sig = min(it.sig, it.pi)
		it.noteFault("post", err)
	}
}

func (it *Iface) setID() []verbs.SendWR {
	it.pi++
	it.wr[0].ID = it.pi
	if it.wr[0].Flags&verbs.SendSignaled != 0 {
		it.sig = it.pi
	}
	return it.wr[:]
}

// control sends a control packet, whose body of n bytes is in it.scratch after the header; false if
// the send queue is full.
func (it *Iface) control(c *conn, h dgram.Header, n int) bool {
	if !it.hasSlot() {
		return false
	}
	h.Put(it.scratch[:])
	wr := it.address(c)
	wr.Flags = verbs.SendInline
	wr.Inline = it.scratch[:dgram.HeaderLen+n]
	it.post()
	return true
}

// body returns the slice of it.scratch to which the body of a control packet is appended.
func (it *Iface) body() []byte { return it.scratch[dgram.HeaderLen:dgram.HeaderLen] }

// sendCreq sends a connection request to c's peer. If the send queue is full, the timer sends it
// later.
func (it *Iface) sendCreq(c *conn) {
	b := dgram.Creq{
		Iface: it.ifaceAddr(), Device: it.port.Addr, ID: c.id, Number: c.number,
	}.Append(it.body())
	it.control(c, c.proto.Control(dgram.CtlCreq, false), len(b))
}

// sendCrep sends a connect reply. If it cannot be sent or is lost, the peer sends its request
// again.
func (it *Iface) sendCrep(c *conn) {
	b := dgram.AppendCrep(it.body(), c.id)
	it.control(c, c.proto.Control(dgram.CtlCrep, false), len(b))
}

// ackMayBeDue adds c to the lists of connections with a due acknowledgement, if it has one.
func (it *Iface) ackMayBeDue(c *conn) {
	kind, urgent := c.proto.AckKind()
	if kind == 0 {
		return
	}
	if urgent && !c.urgent {
		it.backlog = true
		c.urgent = true
		if it.urgent == nil {
			it.urgent = c
		} else {
			it.lastUrgent.nextUrgent = c
		}
		it.lastUrgent = c
	}
	if !c.ackListed {
		c.ackListed = true
		c.nextAck, it.acks = it.acks, c
	}
}

// sendUrgentAcks sends urgent acknowledgements, the oldest first, until the send queue is full. An
// acknowledgement that a data packet has carried in the meantime is not due any more.
func (it *Iface) sendUrgentAcks() {
	for it.urgent != nil {
		c := it.urgent
		if kind, urgent := c.proto.AckKind(); urgent && !it.sendAck(c, kind) {
			return
		}
		it.urgent = c.nextUrgent
		c.nextUrgent, c.urgent = nil, false
	}
}

// sendAcks sends the due acknowledgements until the send queue is full.
func (it *Iface) sendAcks() {
	for it.acks != nil {
		c := it.acks
		if kind, _ := c.proto.AckKind(); kind != 0 && !it.sendAck(c, kind) {
			return
		}
		it.acks = c.nextAck
		c.nextAck, c.ackListed = nil, false
	}
}

// sendAck sends an acknowledgement; false if the send queue is full, and the acknowledgement is
// still due.
func (it *Iface) sendAck(c *conn, kind dgram.Control) bool {
	return it.hasSlot() && it.control(c, c.proto.Control(kind, false), 0)
}
