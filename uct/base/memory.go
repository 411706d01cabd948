package base

import (
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/memprot"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// KeyLen is the length in bytes of a packed key of a [Memory].
const KeyLen = 8

// Memory is the memory of a domain whose transport only has messages, so that the
// target copies for its peers: [Memory.Write] and [Memory.Read] check the request in a
// message. It implements uct.Allocator, uct.Registrar and uct.RKeyUnpacker, and counts
// its regions as users; a domain embeds it. The zero value is ready. Any goroutine may
// call its methods.
type Memory struct {
	Users
	mu      sync.RWMutex // held for reading while bytes are copied
	regions map[uct.RKey]*region
}

// region implements uct.Mem.
type region struct {
	m      *Memory
	key    uct.RKey
	buf    []byte
	addr   uint64
	access uct.Access
	owned  bool // mapped by Alloc
}

// MDExt returns the features of a domain with m.
func (m *Memory) MDExt() *uct.MDExt { return &uct.MDExt{Reg: m, Alloc: m, Keys: m} }

// Alloc implements uct.Allocator.
func (m *Memory) Alloc(n int, access uct.Access) (uct.Mem, error) {
	if n <= 0 {
		return nil, &ucs.OpError{Op: "allocate memory", Err: uct.ErrInvalidParam}
	}
	buf, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, &ucs.OpError{Op: "allocate memory", Err: err}
	}
	mem, err := m.add(buf, access, true)
	if err != nil {
		_ = unix.Munmap(buf)
	}
	return mem, err
}

// Reg implements uct.Registrar. The region references buf; the Go heap does not move it.
func (m *Memory) Reg(buf []byte, access uct.Access) (uct.Mem, error) {
	if len(buf) == 0 {
		return nil, &ucs.OpError{Op: "register memory", Err: uct.ErrInvalidParam}
	}
	if err := memprot.Check(buf, access.Writes()); err != nil {
		return nil, &ucs.OpError{Op: "register memory", Err: err}
	}
	return m.add(buf, access, false)
}

func (m *Memory) add(buf []byte, access uct.Access, owned bool) (uct.Mem, error) {
	if access&^uct.AccessAll != 0 {
		return nil, &ucs.OpError{Op: "register memory", Err: uct.ErrInvalidParam}
	}
	if err := m.Hold(); err != nil {
		return nil, &ucs.OpError{Op: "register memory", Err: err}
	}
	r := &region{m: m, buf: buf, addr: uint64(reflect.ValueOf(buf).Pointer()), access: access, owned: owned}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.regions == nil {
		m.regions = map[uct.RKey]*region{}
	}
	for r.key == 0 || m.regions[r.key] != nil {
		r.key = uct.RKey(rand.Uint64())
	}
	m.regions[r.key] = r
	return r, nil
}

// UnpackRKey implements uct.RKeyUnpacker.
func (m *Memory) UnpackRKey(b []byte) (uct.RKey, error) {
	if len(b) != KeyLen {
		return 0, uct.ErrInvalidRKey
	}
	return uct.RKey(binary.LittleEndian.Uint64(b)), nil
}

// ReleaseRKey implements uct.RKeyUnpacker. It has no effect, because an unpacked key uses no resources.
func (m *Memory) ReleaseRKey(uct.RKey) {}

// Write copies data to raddr, if key permits that. It reports whether it did.
func (m *Memory) Write(key uct.RKey, raddr uint64, data []byte) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	mem, ok := m.find(key, raddr, len(data), uct.AccessRemoteWrite)
	copy(mem, data)
	return ok
}

// Read fills data from raddr, if key permits that. It reports whether it did.
func (m *Memory) Read(key uct.RKey, raddr uint64, data []byte) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	mem, ok := m.find(key, raddr, len(data), uct.AccessRemoteRead)
	copy(data, mem)
	return ok
}

// find returns the n bytes at raddr, if they are in the region of key, which has the access right need.
// m.mu is locked.
func (m *Memory) find(key uct.RKey, raddr uint64, n int, need uct.Access) ([]byte, bool) {
	r := m.regions[key]
	if r == nil || r.access&need == 0 {
		return nil, false
	}
	off, size := raddr-r.addr, uint64(len(r.buf)) // if raddr < r.addr, off is larger than any size
	if off > size || uint64(n) > size-off {
		return nil, false
	}
	return r.buf[off : off+uint64(n)], true
}

// Bytes implements uct.Mem.
func (r *region) Bytes() []byte { return r.buf }

// Addr implements uct.Mem.
func (r *region) Addr() uint64 { return r.addr }

// PackRKey implements uct.Mem.
func (r *region) PackRKey(b []byte) ([]byte, error) {
	return binary.LittleEndian.AppendUint64(b, uint64(r.key)), nil
}

// Close implements uct.Mem. It waits for copies that have begun.
func (r *region) Close() error {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	if r.m.regions[r.key] != r {
		return nil
	}
	delete(r.m.regions, r.key)
	r.m.Drop()
	if r.owned {
		return unix.Munmap(r.buf)
	}
	return nil
}
