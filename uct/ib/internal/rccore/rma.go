package rccore

import (
	"cmp"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// PutShort implements uct.Putter: an inline RDMA write. The iface references buf until the next
// short put.
//
// It is signal and post inlined: each call would cost a quarter of its time.
func (e *EP) PutShort(buf []byte, raddr uint64, key uct.RKey) error {
	it := e.it
	pi := e.PI
	used := pi - e.CI
	if len(buf) > it.MaxInline || used >= e.Room {
		return e.putShortSlow(buf, raddr, key)
	}
	flags := verbs.SendInline
	if used == 0 || pi-e.Sig >= it.Moderation {
		flags = verbs.SendInline | verbs.SendSignaled
		e.Sig = pi + 1
	}
	pi++
	e.PI = pi
	wr := &it.put[0]
	wr.ID = pi
	wr.Flags = flags
	wr.Inline = buf
	wr.RemoteAddr = raddr
	wr.RKey = uint32(key)
	if _, err := e.send.PostSend(it.put[:]); err != nil {
		return e.failPost(err)
	}
	return nil
}

// putShortSlow is PutShort for a buffer that is too long, or without room.
//
//go:noinline
func (e *EP) putShortSlow(buf []byte, raddr uint64, key uct.RKey) error {
	it := e.it
	if len(buf) > it.MaxInline {
		return uct.ErrTooLong
	}
	flags, err := e.admit()
	if err != nil {
		return err
	}
	wr := &it.put[0]
	wr.Flags = flags | verbs.SendInline | e.signal()
	wr.Inline, wr.RemoteAddr, wr.RKey = buf, raddr, uint32(key)
	return e.post(&it.put)
}

// PutBcopy implements uct.Putter.
func (e *EP) PutBcopy(src []byte, raddr uint64, key uct.RKey) error {
	if len(src) > e.it.attr.Put.MaxBcopy {
		return uct.ErrTooLong
	}
	buf, flags, err := e.admitBuffer()
	if err != nil {
		return err
	}
	n := copy(e.it.tx.Bytes(buf), src)
	wr := e.it.resetOtherWR(verbs.OpRDMAWrite, flags)
	wr.RemoteAddr, wr.RKey = raddr, uint32(key)
	return e.postBuffer(buf, n)
}

// PutZcopy implements uct.Putter. The common case, one IOV, room, and a waiter that can include it,
// is inlined here and in GetZcopy; zcopyList handles the others.
func (e *EP) PutZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (pending bool, err error) {
	it, pi := e.it, e.PI
	if len(iov) != 1 || pi-e.CI >= e.Room || !e.canJoin(c, pi) {
		return e.zcopyList(verbs.OpRDMAWrite, iov, raddr, key, c)
	}
	m, _ := iov[0].Mem.(*ib.Mem)
	if !m.Of(it.md) {
		return false, uct.ErrInvalidParam
	}
	sge, in := m.OneSGE(iov[0].Buf)
	if !in {
		return e.zcopyList(verbs.OpRDMAWrite, iov, raddr, key, c)
	}
	it.oneSGE[0] = sge
	wr := &it.write[0]
	wr.Flags, wr.RemoteAddr, wr.RKey = e.joinSignal(pi), raddr, uint32(key)
	pi++
	e.PI, wr.ID = pi, pi
	e.join(c, pi, opSend)
	if _, err = e.send.PostSend(it.write[:]); err != nil {
		return false, e.failJoined(err)
	}
	return true, nil
}

// GetBcopy implements uct.Getter. A short read returns to the slot of its op.
func (e *EP) GetBcopy(dst []byte, raddr uint64, key uct.RKey, c *uct.Completion) (pending bool, err error) {
	it, n := e.it, len(dst)
	if uint(n-1) >= slotLen {
		return e.getLarge(dst, raddr, key, c)
	}
	var flags verbs.SendFlags
	if e.PI-e.CI >= e.Room || it.ops.free == nil {
		if flags, err = e.admitOp(); err != nil {
			return false, err
		}
	}
	o := it.ops.get()
	o.kind, o.dst, o.comp = opGet, dst, c
	it.fetch[0].Opcode = verbs.OpRDMARead
	it.fetchSGE[0].Addr, it.fetchSGE[0].Length = o.addr, uint32(n)
	return e.postFetch(flags, raddr, key, o)
}

// postFetch posts the read or atomic that returns to the slot of o.
func (e *EP) postFetch(flags verbs.SendFlags, raddr uint64, key uct.RKey, o *op) (pending bool, err error) {
	wr := &e.it.fetch[0]
	wr.Flags = flags | e.opSignal()
	wr.RemoteAddr = raddr
	wr.RKey = uint32(key)
	pi := e.PI + 1
	e.PI, e.lastReadPI, wr.ID = pi, pi, pi
	if _, err := e.send.PostSend(e.it.fetch[:]); err != nil {
		e.dropOp(o)
		return false, e.failPost(err)
	}
	e.queue(o)
	return true, nil
}

// getLarge is GetBcopy for reads longer than a slot.
func (e *EP) getLarge(dst []byte, raddr uint64, key uct.RKey, c *uct.Completion) (pending bool, err error) {
	it, n := e.it, len(dst)
	if n > it.attr.Get.MaxBcopy {
		return false, uct.ErrTooLong
	}
	if n == 0 {
		return false, e.err
	}
	buf, flags, err := e.admitBuffer()
	if err != nil {
		return false, err
	}
	it.sges = append(it.sges[:0], it.tx.SGE(buf, 0, n))
	o := it.ops.get()
	o.kind, o.buf, o.dst, o.comp = opGet, buf, dst, c
	wr := &it.listWR[0]
	wr.Opcode, wr.Flags, wr.SGList = verbs.OpRDMARead, flags|e.opSignal(), it.sges
	wr.RemoteAddr, wr.RKey = raddr, uint32(key)
	e.lastReadPI = e.PI + 1
	if err = e.post(&it.listWR); err != nil {
		e.dropOp(o)
		return false, err
	}
	e.queue(o)
	return true, nil
}

// GetZcopy implements uct.Getter.
func (e *EP) GetZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (pending bool, err error) {
	it, pi := e.it, e.PI
	if len(iov) != 1 || pi-e.CI >= e.Room || !e.canJoin(c, pi) {
		return e.zcopyList(verbs.OpRDMARead, iov, raddr, key, c)
	}
	m, _ := iov[0].Mem.(*ib.Mem)
	if !m.Of(it.md) {
		return false, uct.ErrInvalidParam
	}
	sge, in := m.OneSGE(iov[0].Buf)
	if !in {
		return e.zcopyList(verbs.OpRDMARead, iov, raddr, key, c)
	}
	it.oneSGE[0] = sge
	wr := &it.read[0]
	wr.Flags, wr.RemoteAddr, wr.RKey = e.joinSignal(pi), raddr, uint32(key)
	pi++
	e.PI, e.lastReadPI, wr.ID = pi, pi, pi
	e.join(c, pi, opSend)
	if _, err = e.send.PostSend(it.read[:]); err != nil {
		return false, e.failJoined(err)
	}
	return true, nil
}

// failJoined is failPost for an operation that the waiter has included.
//
//go:noinline
func (e *EP) failJoined(err error) error {
	w := &e.waiter
	if w.sn--; w.sn == w.completedSN {
		w.comp, w.result = nil, nil
	}
	return e.failPost(err)
}

// zcopyList posts a write or read of any IOV list, with or without room, and with or without
// completion.
//
//go:noinline
func (e *EP) zcopyList(opcode verbs.Opcode, iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (pending bool, err error) {
	it := e.it
	if e.pending.Blocks() {
		return false, cmp.Or(e.err, uct.ErrNoResource)
	}
	if len(iov) > it.attr.Put.MaxIOV || uct.IOVLen(iov) > it.maxZcopy {
		return false, uct.ErrTooLong
	}
	sges, ok := it.md.SGEs(it.sges[:0], iov)
	if !ok {
		return false, uct.ErrInvalidParam
	}
	flags, err := e.admitOp()
	if err != nil {
		return false, err
	}
	wr := &it.listWR[0]
	wr.Opcode, wr.RemoteAddr, wr.RKey, wr.SGList = opcode, raddr, uint32(key), sges
	if opcode == verbs.OpRDMARead {
		e.lastReadPI = e.PI + 1
	}
	if c == nil {
		wr.Flags = flags | e.signal()
		err = e.post(&it.listWR)
		return err == nil, err
	}
	return e.postList(flags, c)
}

// postList posts the work request of it.listWR with completion c, as the waiter or by an op.
func (e *EP) postList(flags verbs.SendFlags, c *uct.Completion) (pending bool, err error) {
	it := e.it
	joins := e.canJoin(c, e.PI)
	it.listWR[0].Flags = flags | e.opSignal()
	if joins {
		if err = e.post(&it.listWR); err == nil {
			e.join(c, e.PI, opSend)
		}
		return err == nil, err
	}
	o := it.ops.get()
	o.kind, o.comp = opSend, c
	if err = e.post(&it.listWR); err != nil {
		e.dropOp(o)
		return false, err
	}
	e.queue(o)
	return true, nil
}

// dropOp frees an op whose work request was not posted.
func (e *EP) dropOp(o *op) {
	if o.buf != noBuffer {
		e.it.tx.Put(o.buf)
	}
	o.comp, o.dst, o.result, o.buf = nil, nil, nil, noBuffer
	e.it.ops.put(o)
}

// admitOp is admit for an operation that needs an op.
func (e *EP) admitOp() (flags verbs.SendFlags, err error) {
	if e.PI-e.CI >= e.Room {
		if flags, err = e.admit(); err != nil {
			return 0, err
		}
	}
	if e.it.ops.freeCount == 0 {
		e.restoreFence(flags)
		return 0, uct.ErrNoResource
	}
	return flags, nil
}

// admitBuffer is admitOp for an operation that also needs a bounce buffer.
func (e *EP) admitBuffer() (buf uint32, flags verbs.SendFlags, err error) {
	if flags, err = e.admitOp(); err != nil {
		return 0, 0, err
	}
	buf, ok := e.it.tx.Get()
	if !ok {
		e.restoreFence(flags)
		return 0, 0, uct.ErrNoResource
	}
	return buf, flags, nil
}

// restoreFence undoes admit: the next work request needs the fence flag again.
func (e *EP) restoreFence(flags verbs.SendFlags) {
	if flags&verbs.SendFence != 0 {
		e.fenced, e.Room = true, 0
	}
}

// postBuffer posts the work request of it.otherWR with the first n bytes of bounce buffer buf. If they
// fit, it sends them inline and frees the buffer.
func (e *EP) postBuffer(buf uint32, n int) error {
	it := e.it
	wr := &it.otherWR[0]
	wr.Flags |= e.signal()
	if n <= it.MaxInline {
		wr.Flags |= verbs.SendInline
		wr.Inline = it.tx.Bytes(buf)[:n]
		err := e.post(&it.otherWR)
		it.tx.Put(buf)
		return err
	}
	if wr.Flags&verbs.SendSignaled == 0 && it.tx.Free() < it.cfg.TxBuffers/2 {
		wr.Flags |= verbs.SendSignaled
		e.Sig = e.PI + 1
	}
	it.sges = append(it.sges[:0], it.tx.SGE(buf, 0, n))
	wr.SGList = it.sges
	o := it.ops.get()
	o.kind, o.buf = opBuffer, buf
	if err := e.post(&it.otherWR); err != nil {
		e.dropOp(o)
		return err
	}
	e.queue(o)
	return nil
}
