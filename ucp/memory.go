package ucp

import (
	"errors"
	"fmt"
	"sync"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Mem is memory that peers can reach and that large transfers move without a copy.
// Methods may be called by any goroutine.
type Mem struct {
	ctx    *Context
	bytes  []byte
	addr   uint64
	access uct.Access
	id     uint64    // names the region in atomics that the target executes; random
	parts  []uct.Mem // by domain, as many as there may be; nil where the domain does not have it

	mu     sync.RWMutex // held for reading while an atomic is executed by software
	packed []byte
	closed bool
}

// MemMap registers buf with every memory domain, with all rights. buf must not be
// empty nor lie on a goroutine's stack; it stays the caller's and is kept reachable
// until Mem.Close. Blocking. ErrUnsupported if no domain registers memory.
func (c *Context) MemMap(buf []byte) (*Mem, error) { return c.MemMapAccess(buf, uct.AccessAll) }

// MemMapAccess is MemMap with the rights that peers and transports get.
func (c *Context) MemMapAccess(buf []byte, access uct.Access) (*Mem, error) {
	if len(buf) == 0 {
		return nil, fmt.Errorf("ucp: map memory of no bytes: %w", ucs.ErrInvalidParam)
	}
	return c.newMem(access, func(parts []uct.Mem) error { return c.register(parts, buf, access) })
}

// MemAlloc allocates n zeroed bytes, page aligned, that the transports reach best:
// on transports that move bytes by themselves, peers reach it without the help of
// this process. All rights. Blocking. ErrInvalidParam unless n > 0.
func (c *Context) MemAlloc(n int) (*Mem, error) { return c.MemAllocAccess(n, uct.AccessAll) }

// MemAllocAccess is MemAlloc with the rights that peers and transports get.
func (c *Context) MemAllocAccess(n int, access uct.Access) (*Mem, error) {
	if n <= 0 {
		return nil, fmt.Errorf("ucp: allocate %d bytes: %w", n, ucs.ErrInvalidParam)
	}
	return c.newMem(access, func(parts []uct.Mem) error {
		for i, d := range c.mds {
			if d.alloc == nil {
				continue
			}
			mem, err := d.alloc.Alloc(n, access)
			if err != nil {
				return err
			}
			parts[i] = mem
			return c.register(parts, mem.Bytes(), access)
		}
		return c.register(parts, make([]byte, n), access)
	})
}

// register adds buf to the domains that do not have it yet. A domain that peers
// would have to address differently, or that refuses, is left out as long as
// another one has the memory.
func (c *Context) register(parts []uct.Mem, buf []byte, access uct.Access) error {
	var addr uint64
	have := false
	for _, p := range parts {
		if p != nil {
			addr, have = p.Addr(), true
		}
	}
	var errs []error
	for i, d := range c.mds {
		if parts[i] != nil || d.reg == nil {
			continue
		}
		mem, err := d.reg.Reg(buf, access)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if have && mem.Addr() != addr {
			errs = append(errs, mem.Close())
			continue
		}
		addr, have, parts[i] = mem.Addr(), true, mem
	}
	if !have {
		return errors.Join(append(errs, ucs.ErrUnsupported)...)
	}
	return nil
}

// newMem makes a Mem out of the parts that fill finds.
func (c *Context) newMem(access uct.Access, fill func(parts []uct.Mem) error) (*Mem, error) {
	if err := c.hold(&c.mems); err != nil {
		return nil, err
	}
	m := &Mem{ctx: c, access: access, parts: make([]uct.Mem, c.limit)}
	if err := m.make(fill); err != nil {
		return nil, errors.Join(fmt.Errorf("ucp: register memory: %w", err), m.Close())
	}
	return m, nil
}

// make fills in what newMem has begun.
func (m *Mem) make(fill func(parts []uct.Mem) error) (err error) {
	c := m.ctx
	c.growth.RLock()
	defer c.growth.RUnlock()
	if err := fill(m.parts); err != nil {
		return err
	}
	for _, p := range m.parts {
		if p != nil && m.bytes == nil {
			m.bytes, m.addr = p.Bytes(), p.Addr()
		}
	}
	m.id = c.regions.add(m)
	m.packed, err = m.pack()
	return err
}

// join registers the memory with domain d, whose number will be n. growth is held.
func (m *Mem) join(d *domain, n int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || d.reg == nil {
		return nil
	}
	part, err := d.reg.Reg(m.bytes, m.access)
	if err != nil {
		return fmt.Errorf("register memory: %w", err)
	}
	if part.Addr() != m.addr {
		return part.Close() // peers would have to address it differently: they do without
	}
	m.parts[n] = part
	m.packed, err = m.pack()
	return err
}

// leave undoes join. growth is held.
func (m *Mem) leave(n int) (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	part := m.parts[n]
	if part == nil {
		return nil
	}
	m.parts[n] = nil
	m.packed, err = m.pack()
	return errors.Join(err, part.Close())
}

// Bytes is the memory.
func (m *Mem) Bytes() []byte { return m.bytes }

// Addr is the address of Bytes()[0] that peers name.
func (m *Mem) Addr() uint64 { return m.addr }

// Pack returns the remote key: bytes to hand to a peer, for EP.Unpack. They are
// the caller's. After Close the key is refused. With IB_ENDPOINTS=MPI-everywhere it
// opens the memory to EPs of workers that were there when it was packed.
func (m *Mem) Pack() []byte {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return append([]byte(nil), m.packed...)
}

// Close deregisters the memory and, after MemAlloc, frees it. Requests that use it
// as a local buffer must have ended. Idempotent.
func (m *Mem) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	m.mu.Unlock()
	m.ctx.regions.remove(m.id)
	defer m.ctx.unhold(&m.ctx.mems)
	return m.release()
}

// release closes the parts, registrations before the allocation that they cover.
func (m *Mem) release() error {
	m.ctx.growth.RLock()
	defer m.ctx.growth.RUnlock()
	var errs []error
	var owner uct.Mem
	for i, p := range m.parts {
		if p == nil {
			continue
		}
		if owner == nil && m.ctx.mds[i].alloc != nil {
			owner = p
			continue
		}
		errs = append(errs, p.Close())
	}
	if owner != nil {
		errs = append(errs, owner.Close())
	}
	return errors.Join(errs...)
}

// covers reports whether buf lies in the memory.
func (m *Mem) covers(buf []byte) bool { return within(m.bytes, buf) }

// regionTable finds the memory that a peer names in an atomic that this process
// executes.
type regionTable struct {
	mu   sync.RWMutex
	byID map[uint64]*Mem
}

func (t *regionTable) add(m *Mem) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID == nil {
		t.byID = map[uint64]*Mem{}
	}
	for {
		id := randomID()
		if _, taken := t.byID[id]; !taken {
			t.byID[id] = m
			return id
		}
	}
}

// all lists what is there, in no order.
func (t *regionTable) all() (list []*Mem) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, m := range t.byID {
		list = append(list, m)
	}
	return list
}

func (t *regionTable) remove(id uint64) {
	t.mu.Lock()
	delete(t.byID, id)
	t.mu.Unlock()
}

func (t *regionTable) find(id uint64) *Mem {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byID[id]
}
