package memtp

import (
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

const (
	pageSize  = 4096
	maxRegion = 1 << 30 // arbitrary
)

// Transport and Device are the names of the one resource of an [MD].
const (
	Transport = "mem"
	Device    = "memory"
)

// MD is a memory domain of a [World].
type MD struct {
	world *World
	id    uint64
	attr  uct.MDAttr
	open  int // ifaces and regions; under world.mu
	dead  bool
	shut  bool
}

// region is registered memory. It is in World.regions until Close.
type region struct {
	md     *MD
	id     uint64
	buf    []byte
	access uct.Access
	closed bool
}

// Attr implements uct.MD.
func (m *MD) Attr() *uct.MDAttr { return &m.attr }

// Ext implements uct.MD.
func (m *MD) Ext() *uct.MDExt { return &uct.MDExt{Reg: m, Alloc: m, Keys: m} }

// Resources implements uct.MD.
func (m *MD) Resources() ([]uct.Resource, error) {
	return []uct.Resource{{Transport: Transport, Device: Device, Kind: uct.DeviceShm}}, nil
}

// Close implements uct.MD.
func (m *MD) Close() error {
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	if m.open > 0 {
		return m.fail("close", fmt.Errorf("%d objects are open: %w", m.open, uct.ErrBusy))
	}
	m.shut = true
	return nil
}

// Reg implements uct.Registrar.
func (m *MD) Reg(buf []byte, access uct.Access) (uct.Mem, error) {
	if len(buf) == 0 || len(buf) > maxRegion || access&^uct.AccessAll != 0 {
		return nil, m.fail("register memory", uct.ErrInvalidParam)
	}
	if access&(uct.AccessRemoteWrite|uct.AccessRemoteAtomic) != 0 {
		access |= uct.AccessLocalWrite
	}
	w := m.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.shut {
		return nil, m.fail("register memory", uct.ErrClosed)
	}
	r := &region{md: m, id: w.newID(), buf: buf, access: access}
	w.regions[r.id] = r
	m.open++
	return r, nil
}

// Alloc implements uct.Allocator.
func (m *MD) Alloc(n int, access uct.Access) (uct.Mem, error) {
	if n <= 0 || n > maxRegion {
		return nil, m.fail("allocate memory", uct.ErrInvalidParam)
	}
	return m.Reg(pageAligned(n), access)
}

func (m *MD) fail(op string, err error) error {
	return &ucs.OpError{TL: Transport, Dev: m.attr.Name, Op: op, Err: err}
}

// Bytes implements uct.Mem.
func (r *region) Bytes() []byte { return r.buf }

// Addr implements uct.Mem.
func (r *region) Addr() uint64 { return addrOf(r.buf) }

// PackRKey implements uct.Mem.
func (r *region) PackRKey(b []byte) ([]byte, error) { return appendID(b, kindKey, r.id), nil }

// Close implements uct.Mem.
func (r *region) Close() error {
	w := r.md.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	r.md.open--
	delete(w.regions, r.id)
	return nil
}

// covers reports whether b is inside the region.
func (r *region) covers(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	return addrOf(b)-addrOf(r.buf) <= uint64(len(r.buf)) &&
		uint64(len(b)) <= uint64(len(r.buf))-(addrOf(b)-addrOf(r.buf))
}

// UnpackRKey implements uct.RKeyUnpacker.
func (m *MD) UnpackRKey(b []byte) (uct.RKey, error) {
	id, ok := parseID(b, kindKey)
	if !ok {
		return 0, m.fail("unpack rkey", uct.ErrInvalidRKey)
	}
	return uct.RKey(id), nil
}

// ReleaseRKey implements uct.RKeyUnpacker. An unpacked key has no resources.
func (m *MD) ReleaseRKey(uct.RKey) {}

// reach returns the n bytes at raddr of the region of key, or nil if they are not in the region or it does not permit the
// access. The caller holds w.mu.
func (w *World) reach(key uct.RKey, raddr uint64, n int, need uct.Access) []byte {
	r := w.regions[uint64(key)]
	if r == nil || r.access&need != need {
		return nil
	}
	off := raddr - addrOf(r.buf)
	if off > uint64(len(r.buf)) || uint64(n) > uint64(len(r.buf))-off {
		return nil
	}
	return r.buf[off : off+uint64(n)]
}
