package udcore

import (
	"errors"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/internal/dgram"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// receive handles a datagram. Any host on the network can have sent it: a datagram that is not from
// the peer of a connection is dropped and counted.
func (it *Iface) receive(wc *verbs.WC) {
	b := it.rx.Buf(wc.ID)
	n := int(wc.ByteLen)
	if wc.Status != verbs.WCSuccess || n < rxPrefix || n > b.Len() || it.closed {
		it.rx.Put(b)
		it.strays.Inc()
		return
	}
	data := b.Bytes(n)
	h, ok := dgram.ParseHeader(data[grhLen:])
	if !ok {
		it.rx.Put(b)
		it.strays.Inc()
		return
	}
	if !h.AM && h.ID == dgram.CtlCreq {
		it.connectRequest(data, wc.SrcQP)
		it.rx.Put(b)
		return
	}
	c := it.conns.Find(uint64(h.Dest ^ it.salt))
	if c == nil || !c.peer.sent(data, wc.SrcQP) {
		it.rx.Put(b)
		it.strays.Inc()
		return
	}
	if !h.AM {
		it.controlPacket(c, h, data[rxPrefix:])
		it.rx.Put(b)
		return
	}
	it.acknowledged(c, h)
	deliver := c.proto.State() != dgram.Idle && c.proto.Arrived(h.PSN, h.AckReq)
	it.ackMayBeDue(c)
	if !deliver || h.ID == dgram.ProbeID {
		it.rx.Put(b)
		return
	}
	it.rx.Deliver(&it.handlers, h.ID, b, n-rxPrefix)
}

// acknowledged handles the acknowledgement in a packet for c. It runs completions.
func (it *Iface) acknowledged(c *conn, h dgram.Header) {
	n := c.proto.Acked(h.Ack)
	if n == 0 {
		return
	}
	for p := c.dequeue(n); p != nil; {
		next := p.next
		it.release(p, ucs.StatusOK)
		p = next
	}
	it.flushes.complete(&c.flushes, h.Ack.Next())
	if !c.proto.Waiting() {
		it.active.Remove(c)
	}
	it.transmit(c)
}

// dequeue removes the n oldest packets, 1 or more, from the queue and returns them as a list. It
// removes all before the first one completes: a completion may post, and the next packet in the
// queue must be the one that proto sends next.
func (c *conn) dequeue(n int) *packet {
	list := c.head
	var last *packet
	for range n {
		last = c.head
		c.head = last.next
		if c.unsent == last {
			c.unsent = c.head
		}
	}
	last.next = nil
	if c.head == nil {
		c.tail = nil
	}
	return list
}

// controlPacket handles a control packet of c's peer.
func (it *Iface) controlPacket(c *conn, h dgram.Header, body []byte) {
	if h.ID == dgram.CtlCrep {
		it.connectReply(c, body)
		return
	}
	it.acknowledged(c, h)
	switch h.ID {
	case dgram.CtlNak:
		c.proto.Nak()
		it.resends.Inc()
		c.unsent = c.head
		it.transmit(c)
	case dgram.CtlFin:
		it.peerClosed(c)
		return
	}
	if h.AckReq {
		c.proto.AckRequested(h.PSN)
	}
	it.ackMayBeDue(c)
}

// connectRequest handles a CREQ from a QP. It finds or makes the connection, and sends a CREP.
func (it *Iface) connectRequest(data []byte, from uint32) {
	req, err := dgram.ParseCreq(data[rxPrefix:])
	if err != nil || req.Iface.QPN != from || req.Device.Ethernet && req.Device.GID != source(data) ||
		it.port.Reach(req.Device) != nil || it.checkMTU(req.Iface) != nil {
		it.strays.Inc()
		return
	}
	p, err := it.findPeer(peerKey{req.Device, from})
	if err != nil {
		it.strays.Inc()
		return
	}
	c := p.conns[req.Number]
	if c != nil && (c.gone || !c.proto.Accept(req.ID)) {
		it.replaced(c)
		if p, err = it.findPeer(p.key); err != nil {
			it.strays.Inc()
			return
		}
		c = p.conns[req.Number] // the connection of an EP that a callback has made
	}
	if c == nil {
		if c, err = it.newConn(p, req.Number); err != nil {
			it.dropPeer(p)
			it.strays.Inc()
			return
		}
	}
	c.proto.Accept(req.ID) // no effect if it was accepted above
	it.sendCrep(c)
	it.connected(c)
}

// replaced fails a connection whose peer makes a new one: the peer has lost the old one, or is
// another iface with the QPN of one that has closed.
func (it *Iface) replaced(c *conn) {
	if c.gone {
		it.fail(c, ucs.StatusPeerClosed, nil)
		return
	}
	it.fail(c, ucs.StatusConnReset, errors.New("the peer has connected again"))
}

func (it *Iface) connectReply(c *conn, body []byte) {
	id, ok := dgram.ParseCrep(body)
	if !ok || !c.proto.Accept(id) {
		it.strays.Inc()
		return
	}
	it.connected(c)
}

// connected sends the packets that waited for the connection.
func (it *Iface) connected(c *conn) {
	it.transmit(c)
	it.ackMayBeDue(c)
	if !c.proto.Waiting() {
		it.active.Remove(c)
	}
}

// peerClosed handles a FIN. The connection fails at once if an operation waits for the peer, else
// at the next post.
func (it *Iface) peerClosed(c *conn) {
	switch {
	case c.ep == nil:
		it.drop(c, ucs.StatusPeerClosed)
	case c.proto.Unacked() > 0 || !c.ep.pending.Empty():
		it.fail(c, ucs.StatusPeerClosed, nil)
	default:
		c.gone = true
	}
}
