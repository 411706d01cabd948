package rccore

import (
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// PutShort implements uct.Putter: an inline RDMA write. The slice of the last
// short put of an iface stays referenced until the next.
//
// It is signal and post written out: each call would cost a quarter of it.
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
	wr.RKey = uint32(key.Handle)
	if _, err := e.send.PostSend(it.put[:]); err != nil {
		return e.postFailed(err)
	}
	return nil
}

// putShortSlow is PutShort for a buffer that is too long, and without room.
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
	wr.Inline, wr.RemoteAddr, wr.RKey = buf, raddr, uint32(key.Handle)
	return e.post(&it.put)
}

// PutBcopy implements uct.Putter.
func (e *EP) PutBcopy(p uct.Packer, raddr uint64, key uct.RKey) (n int, err error) {
	buf, flags, err := e.admitBuffer()
	if err != nil {
		return 0, err
	}
	n = p.Pack(e.it.tx.Bytes(buf))
	wr := e.it.fullWR(verbs.OpRDMAWrite, flags)
	wr.RemoteAddr, wr.RKey = raddr, uint32(key.Handle)
	return n, e.postBuffer(buf, n)
}

// PutZcopy implements uct.Putter.
func (e *EP) PutZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (pending bool, err error) {
	if err := checkIOV(iov, &e.it.attr.Put); err != nil {
		return false, err
	}
	return e.zcopy(verbs.OpRDMAWrite, iov, raddr, key, c)
}

// GetBcopy implements uct.Getter.
func (e *EP) GetBcopy(u uct.Unpacker, n int, raddr uint64, key uct.RKey, c *uct.Completion) (pending bool, err error) {
	if n < 0 || n > e.it.attr.Get.MaxBcopy {
		return false, uct.ErrTooLong
	}
	if n == 0 {
		u.Unpack(nil)
		return false, nil
	}
	buf, flags, err := e.admitBuffer()
	if err != nil {
		return false, err
	}
	it := e.it
	it.fetchSGE[0] = it.tx.SGE(buf, 0, n)
	o := it.ops.get()
	o.kind, o.buf, o.n, o.unpack, o.comp = opGet, buf, n, u, c
	return e.postFetch(verbs.OpRDMARead, flags, raddr, key, o)
}

// postFetch posts the read or atomic into it.fetchSGE, whose op is o.
func (e *EP) postFetch(opcode verbs.Opcode, flags verbs.SendFlags, raddr uint64, key uct.RKey, o *op) (pending bool, err error) {
	wr := &e.it.fetch[0]
	wr.Opcode = opcode
	wr.Flags = flags | verbs.SendSignaled
	wr.RemoteAddr = raddr
	wr.RKey = uint32(key.Handle)
	e.Sig = e.PI + 1
	e.reads = e.PI + 1
	if err := e.post(&e.it.fetch); err != nil {
		e.dropOp(o)
		return false, err
	}
	e.queue(o)
	return true, nil
}

// GetZcopy implements uct.Getter.
func (e *EP) GetZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (pending bool, err error) {
	if err := checkIOV(iov, &e.it.attr.Get); err != nil {
		return false, err
	}
	return e.zcopy(verbs.OpRDMARead, iov, raddr, key, c)
}

// checkIOV holds iov against the limits of a zero-copy operation.
func checkIOV(iov []uct.IOV, l *uct.OpLimits) error {
	if len(iov) > l.MaxIOV || uct.IOVLen(iov) > l.MaxZcopy {
		return uct.ErrTooLong
	}
	return nil
}

// zcopy posts a write or read of the user's memory.
func (e *EP) zcopy(opcode verbs.Opcode, iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (pending bool, err error) {
	it := e.it
	sges, ok := it.md.SGEs(it.sges[:0], iov)
	if !ok {
		return false, uct.ErrInvalidParam
	}
	flags, err := e.admitOp()
	if err != nil {
		return false, err
	}
	wr := it.fullWR(opcode, flags|verbs.SendSignaled)
	wr.RemoteAddr, wr.RKey, wr.SGList = raddr, uint32(key.Handle), sges
	return e.postOp(opcode != verbs.OpRDMAWrite, noBuffer, c)
}

// postOp posts the signaled work request in it.full, whose op completes c and
// then frees buf.
func (e *EP) postOp(read bool, buf uint32, c *uct.Completion) (pending bool, err error) {
	o := e.it.ops.get()
	o.kind, o.buf, o.comp = opSend, buf, c
	e.Sig = e.PI + 1
	if read {
		e.reads = e.PI + 1
	}
	if err = e.post(&e.it.full); err != nil {
		e.dropOp(o)
		return false, err
	}
	e.queue(o)
	return true, nil
}

// dropOp gives back an op whose work request was refused.
func (e *EP) dropOp(o *op) {
	if o.buf != noBuffer {
		e.it.tx.Put(o.buf)
	}
	if o.word != noBuffer {
		e.it.words.Put(o.word)
	}
	e.it.ops.put(o)
}

// admitOp is admission for an operation that needs an op.
func (e *EP) admitOp() (flags verbs.SendFlags, err error) {
	if e.PI-e.CI >= e.Room {
		if flags, err = e.admit(); err != nil {
			return 0, err
		}
	}
	if e.it.ops.left == 0 {
		e.refence(flags)
		return 0, uct.ErrNoResource
	}
	return flags, nil
}

// admitBuffer is admission for an operation that also needs a bounce buffer.
func (e *EP) admitBuffer() (buf uint32, flags verbs.SendFlags, err error) {
	if flags, err = e.admitOp(); err != nil {
		return 0, 0, err
	}
	buf, ok := e.it.tx.Get()
	if !ok {
		e.refence(flags)
		return 0, 0, uct.ErrNoResource
	}
	return buf, flags, nil
}

// refence takes admission back: the fence that it gave away is due again.
func (e *EP) refence(flags verbs.SendFlags) {
	if flags&verbs.SendFence != 0 {
		e.fenced, e.Room = true, 0
	}
}

// postBuffer posts the work request in it.full with the first n bytes of bounce
// buffer buf: inline if they are few, and the buffer is free at once.
func (e *EP) postBuffer(buf uint32, n int) error {
	it := e.it
	wr := &it.full[0]
	wr.Flags |= e.signal()
	if n <= it.MaxInline {
		wr.Flags |= verbs.SendInline
		wr.Inline = it.tx.Bytes(buf)[:n]
		err := e.post(&it.full)
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
	if err := e.post(&it.full); err != nil {
		e.dropOp(o)
		return err
	}
	e.queue(o)
	return nil
}
