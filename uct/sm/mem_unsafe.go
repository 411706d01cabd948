package sm

import (
	"runtime"
	"sync"
	"unsafe"

	"github.com/gucx/gucx/internal/memprot"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/memop"
)

// memory is memory of this process that peers can access.
type memory struct {
	md     *domain
	buf    []byte
	key    uint64
	access uct.Access
	off    int             // offset in the arena; -1 for registered memory
	pin    *runtime.Pinner // pins registered memory; nil for allocated memory

	closing sync.Mutex // locked by Close
	closed  bool
}

func addrOf(p *uint64) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }

// Reg implements uct.Registrar.
func (md *domain) Reg(buf []byte, access uct.Access) (uct.Mem, error) {
	if len(buf) == 0 || access&^uct.AccessAll != 0 {
		return nil, &ucs.OpError{TL: Name, Op: "register memory", Err: uct.ErrInvalidParam}
	}
	if err := memprot.Check(buf, access.Writes()); err != nil {
		return nil, &ucs.OpError{TL: Name, Op: "register memory", Err: err}
	}
	if err := md.users.Hold(); err != nil {
		return nil, &ucs.OpError{TL: Name, Op: "register memory", Err: err}
	}
	m := &memory{md: md, buf: buf, access: access, off: -1, pin: new(runtime.Pinner)}
	m.pin.Pin(unsafe.SliceData(buf))
	if err := md.show(m, memPrivate, 0); err != nil {
		m.pin.Unpin()
		md.users.Drop()
		return nil, &ucs.OpError{TL: Name, Op: "register memory", Err: err}
	}
	return m, nil
}

// Alloc implements uct.Allocator.
func (md *domain) Alloc(n int, access uct.Access) (uct.Mem, error) {
	m, err := md.alloc(n, access)
	if err != nil {
		return nil, &ucs.OpError{TL: Name, Op: "allocate memory", Err: err}
	}
	return m, nil
}

func (md *domain) alloc(n int, access uct.Access) (*memory, error) {
	if n <= 0 || n > len(md.arenaSeg.Bytes()) || access&^uct.AccessAll != 0 {
		return nil, uct.ErrInvalidParam
	}
	if err := md.users.Hold(); err != nil { // a closed domain has no arena
		return nil, err
	}
	m, err := md.allocHeld(n, access)
	if err != nil {
		md.users.Drop()
	}
	return m, err
}

// allocHeld is alloc while the domain cannot be closed.
func (md *domain) allocHeld(n int, access uct.Access) (*memory, error) {
	off, err := md.place(n)
	if err != nil {
		return nil, err
	}
	m := &memory{md: md, buf: md.arenaSeg.Bytes()[off : off+n : off+n], access: access, off: off}
	if err := md.show(m, memArena, uint64(off)); err != nil {
		md.arena.Free(off, n)
		return nil, err
	}
	return m, nil
}

// show adds m to the table. The domain cannot be closed during the call.
func (md *domain) show(m *memory, kind uint32, offset uint64) error {
	md.mu.Lock()
	defer md.mu.Unlock()
	index, ok := md.keyIndexes.Alloc()
	if !ok {
		return uct.ErrNoMemory
	}
	m.key = memop.NewKey(index)
	md.table.entry(m.key).show(m.key, m.access, kind, m.Addr(), uint64(len(m.buf)), offset)
	md.mems[m.key] = m
	if used := &md.table.header().arenaUsed; kind == memArena {
		used.Store(max(used.Load(), offset+uint64(len(m.buf))))
	}
	return nil
}

// Bytes implements uct.Mem.
func (m *memory) Bytes() []byte { return m.buf }

// Addr implements uct.Mem.
func (m *memory) Addr() uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m.buf)))) }

// PackRKey implements uct.Mem.
func (m *memory) PackRKey(b []byte) ([]byte, error) { return memop.PackKey(b, keyMagic, m.key), nil }

// Close implements uct.Mem; see retire.go. Any goroutine may call it.
func (m *memory) Close() error {
	m.closing.Lock()
	defer m.closing.Unlock()
	if m.closed {
		return nil
	}
	m.md.hide(m)
	if err := m.md.revoke(m); err != nil {
		return &ucs.OpError{TL: Name, Op: "deregister memory", Err: err}
	}
	m.closed = true
	m.md.users.Drop()
	return nil
}

// hide removes m from the table, and from the memory for requests of peers. Idempotent.
func (md *domain) hide(m *memory) {
	md.mu.Lock()
	defer md.mu.Unlock()
	md.table.entry(m.key).key.Store(0) // pairs with entry.covers
	delete(md.mems, m.key)
}

// reclaim frees the memory and the key of m when no peer is accessing it.
func (md *domain) reclaim(m *memory) {
	md.mu.Lock()
	defer md.mu.Unlock()
	if md.closed { // the arena is unmapped
		return
	}
	md.keyIndexes.Free(m.key)
	if m.pin != nil {
		m.pin.Unpin()
		return
	}
	md.arena.Free(m.off, len(m.buf))
}
