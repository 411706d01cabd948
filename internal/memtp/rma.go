package memtp

import (
	"github.com/gucx/gucx/uct"
)

// PutShort implements uct.Putter.
func (e *EP) PutShort(buf []byte, raddr uint64, key uct.RKey) error {
	if len(buf) > maxShort {
		return uct.ErrTooLong
	}
	if err := e.free(); err != nil {
		return err
	}
	o := e.tx.push(opPut, nil)
	o.n, o.raddr, o.key = copy(o.buf, buf), raddr, key
	return nil
}

// PutBcopy implements uct.Putter.
func (e *EP) PutBcopy(buf []byte, raddr uint64, key uct.RKey) error {
	if len(buf) > maxBcopy {
		return uct.ErrTooLong
	}
	if err := e.free(); err != nil {
		return err
	}
	o := e.tx.push(opPut, nil)
	o.n, o.raddr, o.key = copy(o.buf, buf), raddr, key
	return nil
}

// PutZcopy implements uct.Putter.
func (e *EP) PutZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (pending bool, err error) {
	if uct.IOVLen(iov) > maxRMA {
		return false, uct.ErrTooLong
	}
	if err := e.usable(iov, 0); err != nil {
		return false, err
	}
	o := e.tx.push(opPut, c)
	o.raddr, o.key = raddr, key
	o.setIOV(iov)
	return true, nil
}

// GetShort implements uct.Getter. It returns ErrNoResource while operations are outstanding.
func (e *EP) GetShort(buf []byte, raddr uint64, key uct.RKey) error {
	if len(buf) > maxShort {
		return uct.ErrTooLong
	}
	if err := e.free(); err != nil {
		return err
	}
	if e.tx.n > 0 {
		return uct.ErrNoResource
	}
	w := e.iface.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(buf) == 0 {
		return nil
	}
	src := w.reach(key, raddr, len(buf), uct.AccessRemoteRead)
	if src == nil {
		return e.iface.md.fail("get", uct.ErrRemoteAccess)
	}
	copy(buf, src)
	return nil
}

// GetBcopy implements uct.Getter.
func (e *EP) GetBcopy(buf []byte, raddr uint64, key uct.RKey, c *uct.Completion) (pending bool, err error) {
	if len(buf) > maxBcopy {
		return false, uct.ErrTooLong
	}
	if err := e.free(); err != nil {
		return false, err
	}
	o := e.tx.push(opGet, c)
	o.iov[0], o.pieces, o.raddr, o.key = uct.IOV{Buf: buf}, 1, raddr, key
	return true, nil
}

// GetZcopy implements uct.Getter.
func (e *EP) GetZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (pending bool, err error) {
	if uct.IOVLen(iov) > maxRMA {
		return false, uct.ErrTooLong
	}
	if err := e.usable(iov, uct.AccessLocalWrite); err != nil {
		return false, err
	}
	o := e.tx.push(opGet, c)
	o.raddr, o.key = raddr, key
	o.setIOV(iov)
	return true, nil
}

// AtomicPost implements uct.Atomics.
func (e *EP) AtomicPost(op uct.AtomicOp, size int, value, raddr uint64, key uct.RKey) error {
	a := &e.iface.attr.Atomic
	o, err := e.pushAtomic(op, size, raddr, a.Post32, a.Post64)
	if err != nil {
		return err
	}
	o.value, o.raddr, o.key = value, raddr, key
	return nil
}

// AtomicFetch implements uct.Atomics.
func (e *EP) AtomicFetch(op uct.AtomicOp, size int, value uint64, result *uint64, raddr uint64, key uct.RKey, c *uct.Completion) (pending bool, err error) {
	if op == uct.AtomicCSwap {
		return false, uct.ErrUnsupported
	}
	a := &e.iface.attr.Atomic
	o, err := e.pushAtomic(op, size, raddr, a.Fetch32, a.Fetch64)
	if err != nil {
		return false, err
	}
	o.value, o.result, o.raddr, o.key, o.c = value, result, raddr, key, c
	return true, nil
}

// AtomicCSwap implements uct.Atomics.
func (e *EP) AtomicCSwap(size int, compare, swap uint64, result *uint64, raddr uint64, key uct.RKey, c *uct.Completion) (pending bool, err error) {
	a := &e.iface.attr.Atomic
	o, err := e.pushAtomic(uct.AtomicCSwap, size, raddr, a.Fetch32, a.Fetch64)
	if err != nil {
		return false, err
	}
	o.compare, o.value, o.result, o.raddr, o.key, o.c = compare, swap, result, raddr, key, c
	return true, nil
}

// pushAtomic checks an atomic operation and adds it to the ring.
func (e *EP) pushAtomic(kind uct.AtomicOp, size int, raddr uint64, ops32, ops64 uct.AtomicOps) (*op, error) {
	have := ops64
	if size == 4 {
		have = ops32
	}
	switch {
	case size != 4 && size != 8, raddr%uint64(max(size, 1)) != 0:
		return nil, uct.ErrInvalidParam
	case !have.Has(kind):
		return nil, uct.ErrUnsupported
	}
	if err := e.free(); err != nil {
		return nil, err
	}
	o := e.tx.push(opAtomic, nil)
	o.atomic, o.size = kind, size
	return o, nil
}
