package udcore

import (
	"github.com/gucx/gucx/internal/seq"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// packet is a data packet, from its post until it is acknowledged and the device does not use it
// any more. It has the bounce buffer with the same index.
type packet struct {
	next   *packet
	buf    uint32
	n      int        // number of bytes in the buffer, including the header
	amID   uint8      // active message id or dgram.ProbeID
	status ucs.Status // final status, while in Iface.unread
	lastSN uint64     // number of the last datagram for which the device reads the buffer
	z      *zop       // user memory that follows the buffer, or nil
}

// maxIOV is the maximum number of buffers of a zcopy message.
const maxIOV = 8

// zop is the user's memory of a zcopy packet.
type zop struct {
	next   *zop
	comp   *uct.Completion
	status ucs.Status
	lastSN uint64
	n      int
	sges   [maxIOV]verbs.SGE
	bufs   [maxIOV][]byte
}

// zopPool is a free list. It grows to the number in use, which is at most one for each packet.
type zopPool struct{ free *zop }

// zopChunk is the number of zops by which a pool grows.
const zopChunk = 32

//go:noinline
func (p *zopPool) grow() {
	chunk := make([]zop, zopChunk)
	for i := range chunk {
		p.put(&chunk[i])
	}
}

func (p *zopPool) get() *zop {
	if p.free == nil {
		p.grow()
	}
	z := p.free
	p.free, z.next = z.next, nil
	return z
}

func (p *zopPool) put(z *zop) {
	*z = zop{next: p.free}
	p.free = z
}

// allocPacket allocates a packet; nil if none is free.
func (it *Iface) allocPacket() *packet {
	i, ok := it.pool.Get()
	if !ok {
		return nil
	}
	return &it.packets[i]
}

// release completes a packet with st, as soon as the device does not use it any more.
func (it *Iface) release(p *packet, st ucs.Status) {
	if p.lastSN > it.ci {
		p.status = st
		p.next, it.unread = it.unread, p
		return
	}
	it.finishPacket(p, st)
}

func (it *Iface) finishPacket(p *packet, st ucs.Status) {
	z := p.z
	*p = packet{buf: p.buf}
	it.pool.Put(p.buf)
	if z != nil {
		it.finishZop(z, st)
	}
}

func (it *Iface) finishZop(z *zop, st ucs.Status) {
	c := z.comp
	it.zops.put(z)
	if c != nil {
		c.Complete(st)
	}
}

// detach copies the user's memory of a packet to its buffer and completes the zcopy operation with
// st. If the device may be reading the memory, the operation completes later.
func (it *Iface) detach(p *packet, st ucs.Status) {
	z := p.z
	if z == nil {
		return
	}
	p.z = nil
	buf := it.pool.Bytes(p.buf)
	for _, b := range z.bufs[:z.n] {
		p.n += copy(buf[p.n:], b)
	}
	if p.lastSN > it.ci {
		z.status, z.lastSN = st, p.lastSN
		z.next, it.unreadZops = it.unreadZops, z
		return
	}
	it.finishZop(z, st)
}

// completeUnread completes packets and zops that the device does not use any more.
func (it *Iface) completeUnread() {
	packets := it.unread
	it.unread = nil
	for p := packets; p != nil; {
		next := p.next
		it.release(p, p.status)
		p = next
	}
	zops := it.unreadZops
	it.unreadZops = nil
	for z := zops; z != nil; {
		next := z.next
		if z.lastSN > it.ci {
			z.next, it.unreadZops = it.unreadZops, z
		} else {
			it.finishZop(z, z.status)
		}
		z = next
	}
}

// flushOp is a flush that waits for the acknowledgement of a packet.
type flushOp struct {
	next *flushOp
	psn  seq.U16
	comp *uct.Completion
}

// flushQueue contains the flushes of a connection, in order.
type flushQueue struct{ head, tail *flushOp }

// flushPool is a free list.
type flushPool struct {
	free *flushOp
	left int
}

func (p *flushPool) grow(n int) {
	chunk := make([]flushOp, n)
	for i := range chunk {
		chunk[i].next, p.free = p.free, &chunk[i]
	}
	p.left += n
}

// add queues a flush that waits for psn. left must not be 0.
func (p *flushPool) add(q *flushQueue, psn seq.U16, c *uct.Completion) {
	f := p.free
	p.free = f.next
	p.left--
	*f = flushOp{psn: psn, comp: c}
	if q.tail == nil {
		q.head = f
	} else {
		q.tail.next = f
	}
	q.tail = f
}

// complete completes the flushes that waited for packets before una.
func (p *flushPool) complete(q *flushQueue, una seq.U16) {
	for q.head != nil && q.head.psn.Less(una) {
		p.pop(q, ucs.StatusOK)
	}
}

// completeAll completes all flushes with st.
func (p *flushPool) completeAll(q *flushQueue, st ucs.Status) {
	for q.head != nil {
		p.pop(q, st)
	}
}

func (p *flushPool) pop(q *flushQueue, st ucs.Status) {
	f := q.head
	if q.head = f.next; q.head == nil {
		q.tail = nil
	}
	c := f.comp
	*f = flushOp{next: p.free}
	p.free = f
	p.left++
	c.Complete(st)
}
