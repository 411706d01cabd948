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

// Mem is registered memory: the uct.Mem of this component.
type Mem struct {
	md     *MD
	buf    []byte
	addr   uint64
	key    wireKey
	access uct.Access
	block  *offheap.Block // nil for Reg

	// users counts those who touch the memory for a peer at this moment, who may be
	// on any goroutine; memClosed is added for good by Close, which then waits for
	// them.
	users atomic.Int64
	once  sync.Once
	err   error // of Close
}

const memClosed = 1 << 32

var _ uct.Mem = (*Mem)(nil)

// Bytes implements uct.Mem.
func (m *Mem) Bytes() []byte { return m.buf }

// Addr implements uct.Mem.
func (m *Mem) Addr() uint64 { return m.addr }

// PackRKey implements uct.Mem. ErrClosed after Close.
func (m *Mem) PackRKey(b []byte) ([]byte, error) {
	if m.users.Load() >= memClosed {
		return b, m.md.opError("pack rkey", uct.ErrClosed)
	}
	return appendKey(b, m.key), nil
}

// Close implements uct.Mem. It waits for the system call, if any, that moves
// bytes of the memory for a peer.
func (m *Mem) Close() error {
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

// enter keeps the memory from being freed until exit; false if it is closed.
// Between the two nothing may block or call back.
func (m *Mem) enter() bool {
	if m.users.Add(1) > memClosed {
		m.users.Add(-1)
		return false
	}
	return true
}

func (m *Mem) exit() { m.users.Add(-1) }

// offset is where [addr, addr+n) starts in the memory; ok is false if the range
// is not inside.
func (m *Mem) offset(addr uint64, n int) (off int, ok bool) {
	return targetop.Offset(len(m.buf), m.addr, addr, n)
}

// covers reports whether b lies in the memory.
func (m *Mem) covers(b []byte) bool {
	_, ok := m.offset(addrOf(b), len(b))
	return ok || len(b) == 0
}

// memTable is what peers can name. Any goroutine adds and removes; lookups take no lock.
type memTable struct{ mems handle.Shared[Mem] }

// add gives m a key. Its random part is there before any peer can find m.
func (t *memTable) add(m *Mem, nonce uint64) {
	m.key.nonce = nonce
	h := t.mems.Add(m)
	m.key.index, m.key.variant = uint32(h), uint32(h>>32)
}

// remove takes m out: its key is refused from now on.
func (t *memTable) remove(m *Mem) { t.mems.Remove(m.key.handle()) }

// find returns the memory that a peer names with key, and where [addr, addr+n)
// starts in it, if want is granted; nil otherwise. The time it takes does not
// tell how much of a guessed key is right.
func (t *memTable) find(key wireKey, addr uint64, n int, want uct.Access) (*Mem, int) {
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
func (md *MD) Reg(buf []byte, access uct.Access) (uct.Mem, error) {
	m, err := md.register(buf, access, nil)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Alloc implements uct.Allocator.
func (md *MD) Alloc(n int, access uct.Access) (uct.Mem, error) {
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

func (md *MD) register(buf []byte, access uct.Access, block *offheap.Block) (*Mem, error) {
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
	m := &Mem{md: md, buf: buf, addr: addrOf(buf), access: access, block: block}
	md.mems.add(m, randomWord())
	return m, nil
}
