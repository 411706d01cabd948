package udcore

import (
	"encoding/binary"
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/ib/internal/dgram"
)

// EP is the user's handle of a connection.
type EP struct {
	it      *Iface
	c       *conn
	pending base.PendingQueue
	err     error // error of posts after a failure or Close
	base.Slot
	closed bool
}

var _ uct.EP = (*EP)(nil)

// Ops implements uct.EP.
func (e *EP) Ops() *uct.Ops { return &uct.Ops{AM: e, Check: e} }

// NewEP implements uct.Iface. Nothing is sent until the first message. Errors:
// ErrInvalidAddr, ErrUnreachable, ErrNoMemory.
func (it *Iface) NewEP(p uct.EPParams) (uct.EP, error) {
	if it.closed {
		return nil, it.opError("new ep", uct.ErrClosed)
	}
	dev, err := it.port.Peer(p.DeviceAddr)
	if err != nil {
		return nil, it.opError("new ep", err)
	}
	addr, err := it.peerIface(p.IfaceAddr)
	if err != nil {
		return nil, it.opError("new ep", err)
	}
	peer, err := it.findPeer(peerKey{dev, addr.QPN})
	if err != nil {
		return nil, err
	}
	c, err := it.pickConn(peer)
	if err != nil {
		it.dropPeer(peer)
		return nil, it.opError("new ep", err)
	}
	c.ep = &EP{it: it, c: c}
	it.open.Add(c.ep)
	return c.ep, nil
}

// peerIface decodes and checks an iface address.
func (it *Iface) peerIface(b []byte) (dgram.IfaceAddr, error) {
	a, err := dgram.ParseIfaceAddr(b)
	if err != nil {
		return a, err
	}
	return a, it.checkMTU(a)
}

// checkMTU rejects a peer whose MTU is smaller than our datagrams.
func (it *Iface) checkMTU(a dgram.IfaceAddr) error {
	if a.MTU.Bytes() < it.mtu {
		return fmt.Errorf("%w: the peer's MTU %d is below ours, %d", uct.ErrUnreachable, a.MTU.Bytes(), it.mtu)
	}
	return nil
}

// pickConn returns the first connection to the peer without an EP, for a new EP. Both sides do the
// same, so that their n-th EPs share a connection.
func (it *Iface) pickConn(p *peer) (*conn, error) {
	number := p.free.alloc()
	c := p.conns[number]
	if c == nil {
		var err error
		if c, err = it.newConn(p, number); err != nil {
			p.free.put(number)
			return nil, err
		}
	}
	return c, nil
}

// AMShort implements uct.AMSender.
func (e *EP) AMShort(id uint8, hdr uint64, payload []byte) error {
	n := 8 + len(payload)
	if n > e.it.attr.AM.MaxShort {
		return uct.ErrTooLong
	}
	p, err := e.reserve(id)
	if err != nil {
		return err
	}
	buf := e.it.pool.Bytes(p.buf)[dgram.HeaderLen:]
	binary.LittleEndian.PutUint64(buf, hdr)
	copy(buf[8:], payload)
	e.push(p, id, n)
	return nil
}

// AMBcopy implements uct.AMSender.
func (e *EP) AMBcopy(id uint8, pk uct.Packer) (n int, err error) {
	p, err := e.reserve(id)
	if err != nil {
		return 0, err
	}
	n = pk.Pack(e.it.pool.Bytes(p.buf)[dgram.HeaderLen:])
	e.push(p, id, n)
	return n, nil
}

// AMZcopy implements uct.AMSender. c completes when the peer has the message.
func (e *EP) AMZcopy(id uint8, hdr []byte, iov []uct.IOV, c *uct.Completion) (pending bool, err error) {
	it := e.it
	if l := &it.attr.AM; len(hdr) > l.MaxHeader || len(iov) > l.MaxIOV || len(hdr)+uct.IOVLen(iov) > l.MaxZcopy {
		return false, uct.ErrTooLong
	}
	p, err := e.reserve(id)
	if err != nil {
		return false, err
	}
	z := it.zops.get()
	sges, ok := it.md.SGEs(z.sges[:0], iov)
	if !ok {
		it.zops.put(z)
		it.pool.Put(p.buf)
		return false, uct.ErrInvalidParam
	}
	z.n, z.comp = len(sges), c
	keep := z.bufs[:0]
	for i := range iov {
		if len(iov[i].Buf) > 0 {
			keep = append(keep, iov[i].Buf)
		}
	}
	p.z = z
	e.push(p, id, copy(it.pool.Bytes(p.buf)[dgram.HeaderLen:], hdr))
	return true, nil
}

// reserve allocates a packet for a message with this id, or returns the reason why a post is not
// possible.
func (e *EP) reserve(id uint8) (*packet, error) {
	if id > uct.MaxAMID {
		return nil, uct.ErrInvalidParam
	}
	if e.err != nil {
		return nil, e.err
	}
	if e.c.gone {
		e.it.fail(e.c, ucs.StatusPeerClosed, nil)
		return nil, e.err
	}
	if e.pending.Blocks() || e.c.proto.Full() {
		return nil, uct.ErrNoResource
	}
	if p := e.it.allocPacket(); p != nil {
		return p, nil
	}
	return nil, uct.ErrNoResource
}

// push sends p with n bytes of message in its buffer.
func (e *EP) push(p *packet, id uint8, n int) {
	p.amID, p.n = id, dgram.HeaderLen+n
	e.it.push(e.c, p)
}

// Flush implements uct.EP. It completes when the peer has acknowledged all messages.
func (e *EP) Flush(c *uct.Completion) (pending bool, err error) {
	if e.err != nil {
		return false, e.err
	}
	if e.c.proto.Unacked() == 0 {
		return false, nil
	}
	if c != nil && e.it.flushes.left == 0 {
		return false, uct.ErrNoResource
	}
	e.flush(c)
	return true, nil
}

// flush requests an acknowledgement of the peer, once for each last packet, and queues c if it is
// not nil.
func (e *EP) flush(c *uct.Completion) {
	it, conn := e.it, e.c
	if conn.proto.RequestAck() && it.hasSlot() {
		it.control(conn, conn.proto.Control(dgram.CtlAck, true), 0)
	}
	if c != nil {
		it.flushes.add(&conn.flushes, conn.proto.Last(), c)
	}
}

// Fence implements uct.EP. Messages are always in order.
func (e *EP) Fence() error { return e.err }

// AddPending implements uct.EP.
func (e *EP) AddPending(r *uct.PendingReq) error {
	if e.err != nil {
		return e.err
	}
	if e.pending.Empty() && !e.c.proto.Full() && e.it.pool.Free() > 0 && e.it.flushes.left > 0 {
		return uct.ErrBusy
	}
	return e.it.arb.Add(&e.pending, r)
}

// PurgePending implements uct.EP.
func (e *EP) PurgePending(f func(*uct.PendingReq)) { e.it.arb.Purge(&e.pending, f) }

// Close implements uct.EP. Posted messages are still delivered if the iface remains open. Zcopy
// messages and flushes in flight complete with StatusCanceled as soon as the device does not use
// their memory any more.
func (e *EP) Close() error {
	if e.closed {
		return nil
	}
	it, c := e.it, e.c
	lost := e.err != nil
	e.closed, e.err = true, it.opError("post", uct.ErrClosed)
	it.open.Remove(e)
	it.arb.Fail(&e.pending)
	if lost {
		return nil // the connection is closed already
	}
	for p := c.head; p != nil; p = p.next {
		it.detach(p, ucs.StatusCanceled)
	}
	it.flushes.completeAll(&c.flushes, ucs.StatusCanceled)
	c.detachEP() // after the completions, so that an EP that one of them opens does not use this connection
	if c.gone || c.proto.State() == dgram.Idle {
		it.drop(c, ucs.StatusCanceled)
	}
	return nil
}
