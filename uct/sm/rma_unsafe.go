package sm

import (
	"unsafe"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/memop"
)

// mapped returns the mapped address of the n bytes at raddr; nil if the key does not
// permit the access or the memory is not mapped. The guard is set.
func (l *outLink) mapped(key, raddr, n uint64, need uct.Access) unsafe.Pointer {
	if p := l.grant.find(key, raddr, n, need); p != nil {
		return p
	}
	return l.lookUp(key, raddr, n, need)
}

// lookUp is mapped for another region than that of the latest access. It updates the grant.
//
//go:noinline
func (l *outLink) lookUp(key, raddr, n uint64, need uct.Access) unsafe.Pointer {
	t := l.table.entry(key)
	if _, ok := t.covers(key, raddr, n, need); !ok || t.kind.Load() != memArena {
		return nil
	}
	l.grant = grant{key: key, shown: &t.key, access: uct.Access(t.access.Load()), Span: t.Map(l.arena, l.arenaLen, controlLen)}
	if !l.fullBarrier {
		l.grant.words()
	}
	return l.grant.find(key, raddr, n, need)
}

// isUnmapped reports whether the key permits the access, to memory that is not mapped.
func (l *outLink) isUnmapped(key, raddr, n uint64, need uct.Access) bool {
	t := l.table.entry(key)
	_, ok := t.covers(key, raddr, n, need)
	return ok && t.kind.Load() == memPrivate
}

// accessError returns the reason why a key does not permit an access: ErrRemoteAccess for an invalid key, right or range.
// If the peer has closed gracefully, so that its keys are invalid, or its memory could not be mapped,
// Progress fails the EP.
//
//go:noinline
func (l *outLink) accessError() error {
	if l.tx.hdr.closed.Load() != 0 {
		l.markLost()
	}
	if l.hold.Load()&holdDown != 0 {
		return uct.ErrNoResource
	}
	return ucs.ErrRemoteAccess
}

// PutShort implements uct.Putter. The most frequent put is of 8 bytes to the region of the latest access, which
// a few comparisons check. They do not check whether the link is up: before the link is connected,
// the grant is empty. When the peer is gone, its memory is mapped until Progress fails the EP,
// and Flush does not report the put as complete.
func (e *endpoint) PutShort(buf []byte, raddr uint64, key uct.RKey) error {
	l := e.outLink
	off := raddr + l.grant.Shift
	if len(buf) != wordLen || uint64(key) != l.grant.key || off >= l.grant.writes || e.fenced || e.pending.Blocks() {
		return e.putSlow(buf, raddr, uint64(key))
	}
	visitor := l.guard
	idle := visitor.Enter(uint64(key)&memop.KeyIndexMask, false) // regionOf, one instruction less
	if l.grant.shown.Load() != uint64(key) {
		return e.putOtherRegion(idle, buf, raddr, uint64(key))
	}
	*(*[wordLen]byte)(unsafe.Add(l.grant.Base, off)) = [wordLen]byte(buf)
	visitor.Leave(idle)
	return nil
}

// putSlow is PutShort of any length to any region.
//
//go:noinline
func (e *endpoint) putSlow(buf []byte, raddr, key uint64) error {
	if len(buf) > e.maxShort {
		return uct.ErrTooLong
	}
	if !e.ready() {
		return e.postError()
	}
	l := e.outLink
	idle := l.enter(key)
	p := l.grant.find(key, raddr, uint64(len(buf)), uct.AccessRemoteWrite)
	if p == nil {
		return e.putOtherRegion(idle, buf, raddr, key)
	}
	memop.Store(p, buf)
	l.guard.Leave(idle)
	return nil
}

// putOtherRegion is PutShort to another region than that of the latest access. The guard
// is set.
//
//go:noinline
func (e *endpoint) putOtherRegion(idle uint64, buf []byte, raddr, key uint64) error {
	l := e.outLink
	p := l.lookUp(key, raddr, uint64(len(buf)), uct.AccessRemoteWrite)
	if p != nil {
		memop.Store(p, buf)
	}
	l.guard.Leave(idle)
	if p != nil {
		return nil
	}
	return e.putUnmapped(buf, raddr, key)
}

// PutBcopy implements uct.Putter.
func (e *endpoint) PutBcopy(buf []byte, raddr uint64, key uct.RKey) error {
	return e.PutShort(buf, raddr, key)
}

// PutZcopy implements uct.Putter. If the memory is mapped or can be accessed by cross-memory attach,
// it is complete on return.
func (e *endpoint) PutZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	return e.vector(opPut, iov, raddr, uint64(key), c)
}

// GetZcopy implements uct.Getter.
func (e *endpoint) GetZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	return e.vector(opGet, iov, raddr, uint64(key), c)
}

// vector is a put or get of the bytes of iov.
func (e *endpoint) vector(kind opKind, iov []uct.IOV, raddr, key uint64, c *uct.Completion) (bool, error) {
	n, err := memop.CheckIOV(iov, maxIOV, maxZcopy)
	if err != nil {
		return false, err
	}
	if !e.ready() {
		return false, e.postError()
	}
	if n > visitMax && e.table.entry(key).kind.Load() == memArena {
		return false, e.vectorInVisits(kind, iov, raddr, key)
	}
	idle := e.enter(key)
	p := e.mapped(key, raddr, uint64(n), kind.need())
	switch {
	case p == nil:
	case kind == opPut:
		memop.Gather(bytesOf(p, 0, n), iov)
	default:
		memop.Scatter(iov, bytesOf(p, 0, n))
	}
	e.guard.Leave(idle)
	if p != nil {
		return false, nil
	}
	return e.vectorUnmapped(kind, iov, n, raddr, key, c)
}

// vectorInVisits is vector for more than visitMax bytes of mapped memory. If the key becomes invalid
// in between, the rest fails. The peer executes no part of the operation, because it would do so after the
// call has returned.
func (e *endpoint) vectorInVisits(kind opKind, iov []uct.IOV, raddr, key uint64) error {
	for i := range iov {
		for buf := iov[i].Buf; len(buf) > 0; {
			n := min(len(buf), visitMax)
			if !e.moveExtended(kind, buf[:n], raddr, key) {
				return e.accessError()
			}
			buf, raddr = buf[n:], raddr+uint64(n)
		}
	}
	return nil
}

// moveExtended copies between buf and mapped memory, in one visit; false if the memory is not
// mapped. If necessary it first maps memory that the peer has allocated since.
func (e *endpoint) moveExtended(kind opKind, buf []byte, raddr, key uint64) bool {
	if kind == opGet {
		return e.loadExtended(buf, raddr, key)
	}
	return e.store(buf, raddr, key) || e.mapMore(key, raddr, uint64(len(buf)), uct.AccessRemoteWrite) && e.store(buf, raddr, key)
}

// store copies buf to mapped memory; false if the memory is not mapped.
func (e *endpoint) store(buf []byte, raddr, key uint64) bool {
	l := e.outLink
	idle := l.enter(key)
	p := l.mapped(key, raddr, uint64(len(buf)), uct.AccessRemoteWrite)
	if p != nil {
		memop.Store(p, buf)
	}
	l.guard.Leave(idle)
	return p != nil
}

// GetShort implements uct.Getter. It is claimed only with CMA=y: memory that only the peer
// can access cannot be read before the call returns.
func (e *endpoint) GetShort(buf []byte, raddr uint64, key uct.RKey) error {
	if len(buf) > e.maxGet {
		return e.noGetShort()
	}
	if !e.ready() {
		return e.postError()
	}
	if e.load(buf, raddr, uint64(key)) {
		return nil
	}
	if err := e.getUnmapped(buf, raddr, uint64(key)); err != errTarget {
		return err
	}
	e.cause = e.cmaErr // the kernel forbids it now
	e.markLost()
	return uct.ErrNoResource
}

// noGetShort returns the error of GetShort for a length above maxGet.
//
//go:noinline
func (e *endpoint) noGetShort() error {
	if e.maxGet < 0 {
		return uct.ErrUnsupported
	}
	return uct.ErrTooLong
}

// load fills buf from mapped memory; false if the memory is not mapped.
func (e *endpoint) load(buf []byte, raddr, key uint64) bool {
	l := e.outLink
	idle := l.enter(key)
	p := l.mapped(key, raddr, uint64(len(buf)), uct.AccessRemoteRead)
	if p != nil {
		memop.Load(buf, p)
	}
	l.guard.Leave(idle)
	return p != nil
}

// GetMapped implements uct.MappedGetter, in visits of visitMax.
func (e *endpoint) GetMapped(buf []byte, raddr uint64, key uct.RKey) bool {
	if !e.ready() {
		return false
	}
	for len(buf) > visitMax {
		if !e.loadExtended(buf[:visitMax], raddr, uint64(key)) {
			return false
		}
		buf, raddr = buf[visitMax:], raddr+visitMax
	}
	return e.loadExtended(buf, raddr, uint64(key))
}

// loadExtended is load, but if necessary first maps memory that the peer has allocated since.
func (e *endpoint) loadExtended(buf []byte, raddr, key uint64) bool {
	return e.load(buf, raddr, key) || e.mapMore(key, raddr, uint64(len(buf)), uct.AccessRemoteRead) && e.load(buf, raddr, key)
}

// GetBcopy implements uct.Getter. It reads 8 bytes as PutShort writes them.
func (e *endpoint) GetBcopy(buf []byte, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	l := e.outLink
	off := raddr + l.grant.Shift
	if len(buf) != wordLen || uint64(key) != l.grant.key || off >= l.grant.reads || e.fenced || e.pending.Blocks() {
		return e.getSlow(buf, raddr, uint64(key), c)
	}
	visitor := l.guard
	idle := visitor.Enter(uint64(key)&memop.KeyIndexMask, false) // regionOf, one instruction less
	if l.grant.shown.Load() != uint64(key) {
		return e.getOtherRegion(idle, buf, raddr, uint64(key), c)
	}
	*(*[wordLen]byte)(buf) = *(*[wordLen]byte)(unsafe.Add(l.grant.Base, off))
	visitor.Leave(idle)
	return false, nil
}

// getSlow is GetBcopy of any length from any region.
//
//go:noinline
func (e *endpoint) getSlow(buf []byte, raddr, key uint64, c *uct.Completion) (bool, error) {
	if len(buf) > e.maxBcopy {
		return false, uct.ErrTooLong
	}
	if !e.ready() {
		return false, e.postError()
	}
	l := e.outLink
	idle := l.enter(key)
	p := l.grant.find(key, raddr, uint64(len(buf)), uct.AccessRemoteRead)
	if p == nil {
		return e.getOtherRegion(idle, buf, raddr, key, c)
	}
	memop.Load(buf, p)
	l.guard.Leave(idle)
	return false, nil
}

// getOtherRegion is GetBcopy from another region than that of the latest access. The guard
// is set.
//
//go:noinline
func (e *endpoint) getOtherRegion(idle uint64, buf []byte, raddr, key uint64, c *uct.Completion) (bool, error) {
	e.guard.Leave(idle)
	if e.load(buf, raddr, key) {
		return false, nil
	}
	err := e.getUnmapped(buf, raddr, key)
	if err == errTarget {
		return e.targetGet(buf, raddr, key, c)
	}
	return false, err
}

// word returns the word of an atomic; nil if it is not mapped. The guard is set.
func (l *outLink) word(key, raddr uint64, size int) unsafe.Pointer {
	p := l.mapped(key, raddr, uint64(size), uct.AccessRemoteAtomic)
	if uintptr(p)&uintptr(size-1) != 0 { // the table of the peer is invalid
		return nil
	}
	return p
}

// AtomicPost implements uct.Atomics.
func (e *endpoint) AtomicPost(op uct.AtomicOp, size int, value, raddr uint64, key uct.RKey) error {
	_, err := e.atomic(memop.PostOps, op, size, value, nil, raddr, uint64(key), nil)
	return err
}

// AtomicFetch implements uct.Atomics.
func (e *endpoint) AtomicFetch(op uct.AtomicOp, size int, value uint64, result *uint64, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	return e.atomic(memop.PostOps, op, size, value, result, raddr, uint64(key), c)
}

func (e *endpoint) atomic(set uct.AtomicOps, op uct.AtomicOp, size int, value uint64, result *uint64, raddr, key uint64, c *uct.Completion) (bool, error) {
	if err := memop.CheckAtomic(set, op, size, raddr); err != nil {
		return false, err
	}
	if !e.ready() {
		return false, e.postError()
	}
	l := e.outLink
	idle := l.enter(key)
	p := l.word(key, raddr, size)
	if p == nil {
		l.guard.Leave(idle)
		return e.targetAtomic(op, size, 0, value, result, raddr, key, c)
	}
	old, _ := memop.Atomic(p, op, size, value)
	l.guard.Leave(idle)
	if result != nil {
		*result = old
	}
	return false, nil
}

// AtomicCSwap implements uct.Atomics.
func (e *endpoint) AtomicCSwap(size int, compare, swap uint64, result *uint64, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	if err := memop.CheckAtomic(memop.FetchOps, uct.AtomicCSwap, size, raddr); err != nil {
		return false, err
	}
	if !e.ready() {
		return false, e.postError()
	}
	l := e.outLink
	idle := l.enter(uint64(key))
	p := l.word(uint64(key), raddr, size)
	if p == nil {
		l.guard.Leave(idle)
		return e.targetAtomic(uct.AtomicCSwap, size, compare, swap, result, raddr, uint64(key), c)
	}
	*result = memop.CSwap(p, size, compare, swap)
	l.guard.Leave(idle)
	return false, nil
}
