package tcp

import (
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/gucx/gucx/internal/handle"
	"github.com/gucx/gucx/internal/memprot"
	"github.com/gucx/gucx/internal/offheap"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/targetop"
)

// memory is registered memory: the uct.Mem of this component.
type memory struct {
	md     *domain
	buf    []byte
	addr   uint64
	key    wireKey
	access uct.Access
	block  *offheap.Block // nil for Reg

	// users counts the accesses in progress for peers; any goroutine may execute one. Close adds
	// memClosed and then waits for the accesses.
	users atomic.Int64
	once  sync.Once
	err   error // result of Close
}

const memClosed = 1 << 32

var _ uct.Mem = (*memory)(nil)

// Bytes implements uct.Mem.
func (m *memory) Bytes() []byte { return m.buf }

// Addr implements uct.Mem.
func (m *memory) Addr() uint64 { return m.addr }

// PackRKey implements uct.Mem. ErrClosed after Close.
func (m *memory) PackRKey(b []byte) ([]byte, error) {
	if m.users.Load() >= memClosed {
		return b, m.md.opError("pack rkey", uct.ErrClosed)
	}
	return appendKey(b, m.key), nil
}

// Close implements uct.Mem. It waits for a system call that reads or writes the memory for a peer.
func (m *memory) Close() error {
	m.once.Do(func() {
		m.md.mems.remove(m)
		for m.users.Add(memClosed); m.users.Load() != memClosed; {
			runtime.Gosched()
		}
		if m.block != nil {
			m.err = m.block.Free()
		}
		m.md.users.Drop()
	})
	return m.err
}

// enter starts an access, which ends with exit; Close waits for it. It reports false if the memory
// is closed. In between, the caller must not block and must not call user code.
func (m *memory) enter() bool {
	if m.users.Add(1) > memClosed {
		m.users.Add(-1)
		return false
	}
	return true
}

func (m *memory) exit() { m.users.Add(-1) }

// offset returns the offset of [addr, addr+n) in the memory; ok is false if the range is not
// inside.
func (m *memory) offset(addr uint64, n int) (off int, ok bool) {
	return targetop.Offset(len(m.buf), m.addr, addr, n)
}

// covers reports whether b is inside the memory.
func (m *memory) covers(b []byte) bool {
	_, ok := m.offset(addrOf(b), len(b))
	return ok || len(b) == 0
}

// memTable contains the memory that peers can access. Any goroutine may call its methods; lookups
// take no lock.
type memTable struct{ mems handle.Shared[memory] }

// add assigns a key to m. It sets the nonce before peers can look up m.
func (t *memTable) add(m *memory, nonce uint64) {
	m.key.nonce = nonce
	h := t.mems.Add(m)
	m.key.index, m.key.variant = uint32(h), uint32(h>>32)
}

// remove removes m and makes its key invalid.
func (t *memTable) remove(m *memory) { t.mems.Remove(m.key.handle()) }

// find returns the memory of the key, and the offset of [addr, addr+n) in it, if the memory grants
// the access want; else nil. Its time does not depend on how many bits of a guessed nonce are
// right.
func (t *memTable) find(key wireKey, addr uint64, n int, want uct.Access) (*memory, int) {
	m := t.mems.Find(key.handle())
	if m == nil || m.access&want != want {
		return nil, 0
	}
	var a, b [8]byte
	binary.LittleEndian.PutUint64(a[:], m.key.nonce)
	binary.LittleEndian.PutUint64(b[:], key.nonce)
	if subtle.ConstantTimeCompare(a[:], b[:]) != 1 {
		return nil, 0
	}
	off, ok := m.offset(addr, n)
	if !ok {
		return nil, 0
	}
	return m, off
}

// Reg implements uct.Registrar.
func (md *domain) Reg(buf []byte, access uct.Access) (uct.Mem, error) {
	m, err := md.register(buf, access, nil)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Alloc implements uct.Allocator.
func (md *domain) Alloc(n int, access uct.Access) (uct.Mem, error) {
	if n < 1 {
		return nil, md.opError("allocate memory", fmt.Errorf("%w: length %d", uct.ErrInvalidParam, n))
	}
	block, err := offheap.Alloc(n)
	if err != nil {
		return nil, md.opError(fmt.Sprintf("allocate %d bytes", n), fmt.Errorf("%w: %w", ucs.ErrNoMemory, err))
	}
	m, err := md.register(block.Bytes(), access, block)
	if err != nil {
		return nil, errors.Join(err, block.Free())
	}
	return m, nil
}

func (md *domain) register(buf []byte, access uct.Access, block *offheap.Block) (*memory, error) {
	if len(buf) == 0 {
		return nil, md.opError("register memory", fmt.Errorf("%w: empty buffer", uct.ErrInvalidParam))
	}
	if access&^uct.AccessAll != 0 {
		return nil, md.opError("register memory", fmt.Errorf("%w: access %#x", uct.ErrInvalidParam, uint8(access)))
	}
	if err := memprot.Check(buf, access.Writes()); err != nil {
		return nil, md.opError("register memory", err)
	}
	if err := md.users.Hold(); err != nil {
		return nil, md.opError("register memory", err)
	}
	m := &memory{md: md, buf: buf, addr: addrOf(buf), access: access, block: block}
	md.mems.add(m, randomWord())
	return m, nil
}
