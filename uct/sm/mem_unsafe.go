package sm

import (
	"runtime"
	"sync"
	"unsafe"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/memop"
)

// Mem is memory of this process that peers reach.
type Mem struct {
	md     *MD
	buf    []byte
	key    uint64
	access uct.Access
	off    int             // in the arena; -1 for registered memory
	pin    *runtime.Pinner // of registered memory
	once   sync.Once
}

func addrOf(p *uint64) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }

// Reg implements uct.Registrar.
func (md *MD) Reg(buf []byte, access uct.Access) (uct.Mem, error) {
	if len(buf) == 0 || access&^uct.AccessAll != 0 {
		return nil, &ucs.OpError{TL: Name, Op: "register memory", Err: uct.ErrInvalidParam}
	}
	m := &Mem{md: md, buf: buf, access: access, off: -1, pin: new(runtime.Pinner)}
	m.pin.Pin(unsafe.SliceData(buf))
	if err := md.show(m, memPrivate, 0); err != nil {
		m.pin.Unpin()
		return nil, &ucs.OpError{TL: Name, Op: "register memory", Err: err}
	}
	return m, nil
}

// Alloc implements uct.Allocator.
func (md *MD) Alloc(n int, access uct.Access) (uct.Mem, error) {
	m, err := md.alloc(n, access)
	if err != nil {
		return nil, &ucs.OpError{TL: Name, Op: "allocate memory", Err: err}
	}
	return m, nil
}

func (md *MD) alloc(n int, access uct.Access) (*Mem, error) {
	if n <= 0 || n > len(md.arenaSeg.Bytes()) || access&^uct.AccessAll != 0 {
		return nil, uct.ErrInvalidParam
	}
	md.unpark()
	off, err := md.arena.Alloc(n, md.touches())
	if err != nil {
		return nil, outOfMemory(err)
	}
	m := &Mem{md: md, buf: md.arenaSeg.Bytes()[off : off+n : off+n], access: access, off: off}
	if err := md.show(m, memArena, uint64(off)); err != nil {
		md.arena.Free(off, n)
		return nil, err
	}
	return m, nil
}

// show enters m into the table.
func (md *MD) show(m *Mem, kind uint32, offset uint64) error {
	if err := md.users.Hold(); err != nil {
		return err
	}
	md.mu.Lock()
	defer md.mu.Unlock()
	index, ok := md.places.Take()
	if !ok {
		md.users.Drop()
		return uct.ErrNoMemory
	}
	m.key = memop.NewKey(index)
	md.table.entry(m.key).show(m.key, m.access, kind, m.Addr(), uint64(len(m.buf)), offset)
	md.mems[m.key] = m
	return nil
}

// Bytes implements uct.Mem.
func (m *Mem) Bytes() []byte { return m.buf }

// Addr implements uct.Mem.
func (m *Mem) Addr() uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m.buf)))) }

// PackRKey implements uct.Mem.
func (m *Mem) PackRKey(b []byte) ([]byte, error) { return memop.PackKey(b, keyMagic, m.key), nil }

// Close implements uct.Mem. It waits for peers that are in the memory at this
// moment, a copy at most; the memory of one that does not get on is kept.
func (m *Mem) Close() error {
	m.once.Do(func() {
		m.md.table.entry(m.key).key.Store(0)
		m.md.mu.Lock()
		delete(m.md.mems, m.key)
		m.md.mu.Unlock()
		m.md.retire(m)
		m.md.users.Drop()
	})
	return nil
}

// reclaim gives back what m had, once nobody is inside. md.mu is held.
func (md *MD) reclaim(m *Mem) {
	md.places.Give(m.key)
	if m.pin != nil {
		m.pin.Unpin()
		return
	}
	md.arena.Free(m.off, len(m.buf))
}
