package self

import (
	"os"
	"runtime"
	"sync"
	"unsafe"

	"github.com/gucx/gucx/internal/memprot"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/memop"
	"github.com/gucx/gucx/uct/targetop"
)

// region is registered memory. It is immutable, and keeps its memory alive for operations
// that use it.
type region struct {
	key    uint64
	access uct.Access
	addr   uint64
	buf    []byte
}

// find checks an access and returns the memory, or nil.
func (md *domain) find(key, addr uint64, n int, need uct.Access) []byte {
	r := md.regions.Load(uint32(key & memop.KeyIndexMask))
	if r == nil || r.key != key || r.access&need == 0 {
		return nil
	}
	off, ok := targetop.Offset(len(r.buf), r.addr, addr, n)
	if !ok {
		return nil
	}
	return r.buf[off : off+n]
}

// memory is registered memory.
type memory struct {
	md     *domain
	region *region
	pin    *runtime.Pinner // nil for allocated memory

	mu     sync.Mutex
	closed bool
}

// Reg implements uct.Registrar.
func (md *domain) Reg(buf []byte, access uct.Access) (uct.Mem, error) {
	if len(buf) == 0 || access&^uct.AccessAll != 0 {
		return nil, &ucs.OpError{TL: Name, Op: "register memory", Err: uct.ErrInvalidParam}
	}
	if err := memprot.Check(buf, access.Writes()); err != nil {
		return nil, &ucs.OpError{TL: Name, Op: "register memory", Err: err}
	}
	pin := new(runtime.Pinner)
	pin.Pin(unsafe.SliceData(buf))
	m, err := md.add(buf, access, pin)
	if err != nil {
		pin.Unpin()
		return nil, err
	}
	return m, nil
}

// Alloc implements uct.Allocator.
func (md *domain) Alloc(n int, access uct.Access) (uct.Mem, error) {
	if n <= 0 || access&^uct.AccessAll != 0 {
		return nil, &ucs.OpError{TL: Name, Op: "allocate memory", Err: uct.ErrInvalidParam}
	}
	page := os.Getpagesize()
	mem := make([]byte, n+page)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) & (page - 1)
	m, err := md.add(mem[skip:skip+n:skip+n], access, nil)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (md *domain) add(buf []byte, access uct.Access, pin *runtime.Pinner) (*memory, error) {
	if err := md.users.Hold(); err != nil {
		return nil, err
	}
	md.mu.Lock()
	defer md.mu.Unlock()
	index, ok := md.keyIndexes.Alloc()
	if !ok {
		md.users.Drop()
		return nil, &ucs.OpError{TL: Name, Op: "register memory", Err: uct.ErrNoMemory}
	}
	r := &region{key: memop.NewKey(index), access: access, buf: buf,
		addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(buf))))}
	md.regions.Store(uint32(index), r)
	return &memory{md: md, region: r, pin: pin}, nil
}

// Bytes implements uct.Mem.
func (m *memory) Bytes() []byte { return m.region.buf }

// Addr implements uct.Mem.
func (m *memory) Addr() uint64 { return m.region.addr }

// PackRKey implements uct.Mem.
func (m *memory) PackRKey(b []byte) ([]byte, error) {
	return memop.PackKey(b, keyMagic, m.region.key), nil
}
