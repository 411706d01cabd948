package sm

import (
	"unsafe"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/memop"
)

// mapped returns where n bytes at raddr are mapped here, or nil if the key does not
// allow the access or its memory is not mapped. The guard is up.
func (e *EP) mapped(key, raddr, n uint64, need uct.Access) unsafe.Pointer {
	t := e.table.entry(key)
	off, ok := t.covers(key, raddr, n, need)
	if !ok || t.kind.Load() != memArena {
		return nil
	}
	at := t.offset.Load() + off
	if at < controlLen || at > e.arenaLen || n > e.arenaLen-at { // the peer may lie
		return nil
	}
	return unsafe.Add(e.arena, at)
}

// private reports whether the key allows the access to memory that is not mapped.
func (e *EP) private(key, raddr, n uint64, need uct.Access) bool {
	t := e.table.entry(key)
	_, ok := t.covers(key, raddr, n, need)
	return ok && t.kind.Load() == memPrivate
}

// PutShort implements uct.Putter.
func (e *EP) PutShort(buf []byte, raddr uint64, key uct.RKey) error {
	if len(buf) > e.maxShort {
		return uct.ErrTooLong
	}
	if !e.ready() {
		return e.refused()
	}
	e.guard.enter()
	p := e.mapped(key.Handle, raddr, uint64(len(buf)), uct.AccessRemoteWrite)
	if p == nil {
		e.guard.leave()
		return e.putFar(buf, raddr, key.Handle)
	}
	memop.Store(p, buf)
	e.guard.leave()
	return nil
}

// PutBcopy implements uct.Putter.
func (e *EP) PutBcopy(k uct.Packer, raddr uint64, key uct.RKey) (int, error) {
	if !e.ready() {
		return 0, e.refused()
	}
	if err := e.mayPut(raddr, key.Handle); err != nil {
		return 0, err
	}
	buf := e.bounce()
	n := k.Pack(buf)
	return n, e.PutShort(buf[:n], raddr, key)
}

// mayPut refuses, before anything is packed, what would be refused for any length,
// and what would find no resources.
func (e *EP) mayPut(raddr, key uint64) error {
	t := e.table.entry(key)
	if _, ok := t.covers(key, raddr, 0, uct.AccessRemoteWrite); !ok {
		return ucs.ErrRemoteAccess
	}
	if t.kind.Load() == memPrivate && e.cmaErr != nil && !e.canAskNow() {
		return uct.ErrNoResource
	}
	return nil
}

// bounce is a buffer of MaxBcopy bytes, made at the first use.
func (e *EP) bounce() []byte {
	if e.scratch == nil {
		e.scratch = make([]byte, e.iface.cfg.SegSize)
	}
	return e.scratch
}

// PutZcopy implements uct.Putter. Into memory that is mapped or can be attached to,
// it is complete on return.
func (e *EP) PutZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	return e.vector(askPut, iov, raddr, key.Handle, c)
}

// GetZcopy implements uct.Getter.
func (e *EP) GetZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	return e.vector(askGet, iov, raddr, key.Handle, c)
}

// vector is a put or get of the bytes of iov.
func (e *EP) vector(kind askKind, iov []uct.IOV, raddr, key uint64, c *uct.Completion) (bool, error) {
	n, err := memop.CheckIOV(iov, maxIOV, maxZcopy)
	if err != nil {
		return false, err
	}
	if !e.ready() {
		return false, e.refused()
	}
	e.guard.enter()
	p := e.mapped(key, raddr, uint64(n), kind.need())
	switch {
	case p == nil:
	case kind == askPut:
		memop.Gather(bytesOf(p, 0, n), iov)
	default:
		memop.Scatter(iov, bytesOf(p, 0, n))
	}
	e.guard.leave()
	if p != nil {
		return false, nil
	}
	return e.vectorFar(kind, iov, n, raddr, key, c)
}

// GetShort implements uct.Getter. It is claimed with CMA=y only: what only the peer
// can reach cannot be read before the call returns.
func (e *EP) GetShort(buf []byte, raddr uint64, key uct.RKey) error {
	if len(buf) > e.maxGet {
		return e.noGetShort()
	}
	if !e.ready() {
		return e.refused()
	}
	if e.load(buf, raddr, key.Handle) {
		return nil
	}
	if err := e.getFar(buf, raddr, key.Handle); err != errAsk {
		return err
	}
	e.cause = e.cmaErr // the kernel has changed its mind
	e.lost()
	return uct.ErrNoResource
}

// noGetShort says why GetShort does not take so many bytes.
//
//go:noinline
func (e *EP) noGetShort() error {
	if e.maxGet < 0 {
		return uct.ErrUnsupported
	}
	return uct.ErrTooLong
}

// load fills buf from memory that is mapped; false if it is not.
func (e *EP) load(buf []byte, raddr, key uint64) bool {
	e.guard.enter()
	p := e.mapped(key, raddr, uint64(len(buf)), uct.AccessRemoteRead)
	if p != nil {
		memop.Load(buf, p)
	}
	e.guard.leave()
	return p != nil
}

// lendMin is from how many bytes on GetBcopy lends the peer's memory itself. A copy
// of fewer takes less time than holding posts back while the unpacker runs.
const lendMin = 1 << 10

// GetBcopy implements uct.Getter.
func (e *EP) GetBcopy(u uct.Unpacker, n int, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	if n > e.iface.attr.Get.MaxBcopy {
		return false, uct.ErrTooLong
	}
	if !e.ready() {
		return false, e.refused()
	}
	if n >= lendMin && e.lendMapped(u, n, raddr, key.Handle) {
		return false, nil
	}
	buf := e.bounce()[:n]
	if !e.load(buf, raddr, key.Handle) {
		err := e.getFar(buf, raddr, key.Handle)
		if err == errAsk {
			return e.askGet(u, n, raddr, key.Handle, c)
		}
		if err != nil {
			return false, err
		}
	}
	u.Unpack(buf)
	return false, nil
}

// lendMapped lends memory that is mapped to u; false if it is not. The guard is up
// meanwhile, so that u cannot post.
func (e *EP) lendMapped(u uct.Unpacker, n int, raddr, key uint64) bool {
	e.guard.enter()
	p := e.mapped(key, raddr, uint64(n), uct.AccessRemoteRead)
	if p != nil {
		e.hold.Or(holdLent)
		u.Unpack(bytesOf(p, 0, n))
		e.hold.And(^uint32(holdLent))
		if e.tx.slots == nil { // u has closed the EP, and the guard is gone
			return true
		}
	}
	e.guard.leave()
	return p != nil
}

// word returns the word of an atomic if it is mapped. The guard is up.
func (e *EP) word(key, raddr uint64, size int) unsafe.Pointer {
	p := e.mapped(key, raddr, uint64(size), uct.AccessRemoteAtomic)
	if uintptr(p)&uintptr(size-1) != 0 { // a table that lies
		return nil
	}
	return p
}

// AtomicPost implements uct.Atomics.
func (e *EP) AtomicPost(op uct.AtomicOp, size int, value, raddr uint64, key uct.RKey) error {
	_, err := e.atomic(memop.PostOps, op, size, value, nil, raddr, key.Handle, nil)
	return err
}

// AtomicFetch implements uct.Atomics.
func (e *EP) AtomicFetch(op uct.AtomicOp, size int, value uint64, result *uint64, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	return e.atomic(memop.PostOps, op, size, value, result, raddr, key.Handle, c)
}

func (e *EP) atomic(set uct.AtomicOps, op uct.AtomicOp, size int, value uint64, result *uint64, raddr, key uint64, c *uct.Completion) (bool, error) {
	if err := memop.CheckAtomic(set, op, size, raddr); err != nil {
		return false, err
	}
	if !e.ready() {
		return false, e.refused()
	}
	e.guard.enter()
	p := e.word(key, raddr, size)
	if p == nil {
		e.guard.leave()
		return e.askAtomic(op, size, 0, value, result, raddr, key, c)
	}
	old, _ := memop.Atomic(p, op, size, value)
	e.guard.leave()
	if result != nil {
		*result = old
	}
	return false, nil
}

// AtomicCSwap implements uct.Atomics.
func (e *EP) AtomicCSwap(size int, compare, swap uint64, result *uint64, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	if err := memop.CheckAtomic(memop.FetchOps, uct.AtomicCSwap, size, raddr); err != nil {
		return false, err
	}
	if !e.ready() {
		return false, e.refused()
	}
	e.guard.enter()
	p := e.word(key.Handle, raddr, size)
	if p == nil {
		e.guard.leave()
		return e.askAtomic(uct.AtomicCSwap, size, compare, swap, result, raddr, key.Handle, c)
	}
	*result = memop.CSwap(p, size, compare, swap)
	e.guard.leave()
	return false, nil
}
