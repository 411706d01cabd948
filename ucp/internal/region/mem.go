package region

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Mem is registered memory: peers can access it, and large transfers from and to it need no copy.
// Methods may be called by any goroutine.
type Mem struct {
	set    *Set
	bytes  []byte
	addr   uint64
	access uct.Access
	id     uint64    // identifies the region in operations that the target executes; random
	parts  []uct.Mem // registrations by domain; nil if the domain has none
	first  uint64    // Domain.number of parts[0]
	alloc  *Domain   // domain that allocated the memory; nil if it was only registered
	packed []byte

	mu     sync.RWMutex // locked for reading while software executes an atomic
	closed bool

	closing  sync.Mutex // locked while the parts are closed
	released bool       // all parts are closed; protected by closing
}

// Register registers buf with every domain; see ucp.Context.MemMapAccess.
func (s *Set) Register(buf []byte, access uct.Access) (*Mem, error) {
	if len(buf) == 0 {
		return nil, fmt.Errorf("ucp: map memory of no bytes: %w", ucs.ErrInvalidParam)
	}
	return s.newMem(nil, access, func(parts []uct.Mem) error { return s.register(s.Domains, parts, buf, access) })
}

// Register registers buf with this domain only, with the given access; otherwise as Set.Register. The error
// matches ErrUnsupported if the domain registers no memory.
func (d *Domain) Register(buf []byte, access uct.Access) (*Mem, error) {
	if len(buf) == 0 {
		return nil, fmt.Errorf("ucp: register memory of no bytes: %w", ucs.ErrInvalidParam)
	}
	return d.set.newMem(nil, access, func(parts []uct.Mem) error {
		return d.set.register(d.set.Domains[d.Index:d.Index+1], parts, buf, access)
	})
}

// Group is several domains of one Set.
type Group []*Domain

// Register is Domain.Register for each domain of the group. It fails if one of them fails.
func (g Group) Register(buf []byte, access uct.Access) (*Mem, error) {
	if len(buf) == 0 {
		return nil, fmt.Errorf("ucp: register memory of no bytes: %w", ucs.ErrInvalidParam)
	}
	s := g[0].set
	return s.newMem(nil, access, func(parts []uct.Mem) error {
		if err := ucs.Join(s.registerEach(g, parts, buf, access)...); err != nil {
			return err
		}
		if slices.ContainsFunc(g, func(d *Domain) bool { return parts[d.Index] == nil }) {
			return fmt.Errorf("peers would have to name it by several addresses: %w", ucs.ErrUnsupported)
		}
		return nil
	})
}

// Alloc allocates n bytes and registers them with every domain; see ucp.Context.MemAllocAccess.
func (s *Set) Alloc(n int, access uct.Access) (*Mem, error) {
	if n <= 0 {
		return nil, fmt.Errorf("ucp: allocate %d bytes: %w", n, ucs.ErrInvalidParam)
	}
	d := s.allocator()
	return s.newMem(d, access, func(parts []uct.Mem) error {
		if d == nil {
			return s.register(s.Domains, parts, make([]byte, n), access)
		}
		mem, err := d.alloc.Alloc(n, access)
		if err != nil {
			return err
		}
		parts[d.Index] = mem
		return s.register(s.Domains, parts, mem.Bytes(), access)
	})
}

// allocator returns the domain that allocates memory, nil if none does: the one whose memory
// peers access fastest (uct.MDAttr.AllocReach); of several equal ones the
// first by name.
func (s *Set) allocator() (best *Domain) {
	for _, d := range s.Domains {
		if d.alloc != nil && (best == nil || d.comparePref(best) < 0) {
			best = d
		}
	}
	return best
}

// comparePref is negative if d is preferred to o as the allocator.
func (d *Domain) comparePref(o *Domain) int {
	return cmp.Or(
		cmp.Compare(uint64(d.Attr.AllocReach-1), uint64(o.Attr.AllocReach-1)), // 0 is the last
		cmp.Compare(d.Attr.Component, o.Attr.Component),
		cmp.Compare(d.Attr.Name, o.Attr.Name),
	)
}

// register registers buf with those of some domains that have not registered it yet. It skips a domain for which peers
// would need another address, or whose registration fails, if another domain has registered
// the memory.
func (s *Set) register(with []*Domain, parts []uct.Mem, buf []byte, access uct.Access) error {
	errs := s.registerEach(with, parts, buf, access)
	if slices.ContainsFunc(parts, func(p uct.Mem) bool { return p != nil }) {
		return nil
	}
	if len(errs) == 0 {
		return ucs.ErrUnsupported
	}
	return refused{ucs.Join(errs...)}
}

// refused is the error if no domain has registered memory. It also matches ErrUnsupported, because
// messages need no registration.
type refused struct{ error }

func (r refused) Unwrap() error { return r.error }

func (r refused) Is(target error) bool { return target == ucs.ErrUnsupported }

// registerEach registers buf with those of some domains that have not registered it yet, and skips failures.
func (s *Set) registerEach(with []*Domain, parts []uct.Mem, buf []byte, access uct.Access) (errs []error) {
	var addr uint64
	have := false
	for _, p := range parts {
		if p != nil {
			addr, have = p.Addr(), true
		}
	}
	for _, d := range with {
		i := d.Index
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
	return errs
}

// newMem makes a Mem from the parts that fill registers. alloc is the domain that allocates the memory,
// or nil.
func (s *Set) newMem(alloc *Domain, access uct.Access, fill func(parts []uct.Mem) error) (*Mem, error) {
	m := &Mem{set: s, access: access, parts: make([]uct.Mem, len(s.Domains)), first: s.first, alloc: alloc}
	if err := s.enter(m); err != nil {
		return nil, err
	}
	if err := m.make(fill); err != nil {
		return nil, ucs.Join(fmt.Errorf("ucp: register memory: %w", err), m.Close())
	}
	return m, nil
}

// make completes the Mem of newMem.
func (m *Mem) make(fill func(parts []uct.Mem) error) error {
	m.mu.Lock() // no peer knows the id yet, but a peer may guess it
	defer m.mu.Unlock()
	if err := fill(m.parts); err != nil {
		return err
	}
	key := wire.Key{Region: m.id, Access: m.access}
	for i, p := range m.parts {
		if p == nil {
			continue
		}
		if m.bytes == nil {
			m.bytes, m.addr = p.Bytes(), p.Addr()
		}
		if err := key.Add(i, p); err != nil {
			return err
		}
	}
	key.Addr, key.Length = m.addr, uint64(len(m.bytes))
	m.packed = key.Append(nil)
	return nil
}

// Bytes returns the memory. Memory of MemAlloc must not be accessed after Close.
func (m *Mem) Bytes() []byte { return m.bytes }

// Addr returns the address of Bytes()[0] for peers.
func (m *Mem) Addr() uint64 { return m.addr }

// Pack returns the remote key: bytes that a peer passes to EP.Unpack. They belong to
// the caller. After Close the key is rejected.
func (m *Mem) Pack() []byte { return append([]byte(nil), m.packed...) }

// Key returns the same bytes as Pack. The caller must not modify them.
func (m *Mem) Key() []byte { return m.packed }

// AppendKey appends the bytes of Pack to b.
func (m *Mem) AppendKey(b []byte) []byte { return append(b, m.packed...) }

// Access returns the access rights of peers and transports.
func (m *Mem) Access() uct.Access { return m.access }

// AddrOf returns the address of the first byte of buf for peers. buf must be in the
// memory and not empty.
func (m *Mem) AddrOf(buf []byte) uint64 { return m.addr + offset(m.bytes, buf) }

// Close deregisters the memory and, after MemAlloc, frees it. After it has returned nil,
// no peer and no transport accesses the memory. It waits for accesses that have begun,
// at most ucs.RevokeLimit for each transport. Then it returns an error that wraps
// *ucs.InUseError: no new access begins, but the memory does not belong to the caller yet, which must call Close
// again. Requests that use the memory as a local buffer must be complete. Idempotent.
func (m *Mem) Close() error {
	if m.revoke() {
		m.set.hide(m)
	}
	m.closing.Lock()
	defer m.closing.Unlock()
	if m.released {
		return nil
	}
	err := m.release()
	if m.released = !isInUse(err); m.released {
		m.set.leave()
	}
	return err
}

// revoke makes this process reject further atomics of peers on the memory, and waits for an atomic in progress. It
// returns false if the memory was revoked before.
func (m *Mem) revoke() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	first := !m.closed
	m.closed = true
	return first
}

// release closes the parts, and last the allocation, which the other parts refer to. Parts that peers are
// accessing remain, and so does the allocation.
func (m *Mem) release() error {
	owner := m.owner()
	var errs []error
	for i := range m.parts {
		if i != owner {
			errs = append(errs, m.closePart(i))
		}
	}
	if err := ucs.Join(errs...); owner < 0 || isInUse(err) {
		return err
	}
	return ucs.Join(append(errs, m.closePart(owner))...)
}

// owner returns the index of the part that MemAlloc allocated; -1 if there is none.
func (m *Mem) owner() int {
	if m.alloc != nil {
		return m.alloc.Index
	}
	return -1
}

// closePart closes a part, if there is one, and drops it unless it is in use.
func (m *Mem) closePart(i int) error {
	if m.parts[i] == nil {
		return nil
	}
	err := m.parts[i].Close()
	if !isInUse(err) {
		m.parts[i] = nil
	}
	return err
}

// isInUse reports whether memory could not be closed because a peer is accessing it.
func isInUse(err error) bool {
	var inUse *ucs.InUseError
	return errors.As(err, &inUse)
}

// Covers reports whether buf is in the memory.
func (m *Mem) Covers(buf []byte) bool { return within(m.bytes, buf) }

// AllocatedBy reports whether d has allocated the memory.
func (m *Mem) AllocatedBy(d *Domain) bool { return m.alloc == d }

// In returns the registration of the memory with d, for IOV.Mem; nil if there is none, or d belongs to another Set.
func (m *Mem) In(d *Domain) uct.Mem {
	if i := d.number - m.first; i < uint64(len(m.parts)) {
		return m.parts[i]
	}
	return nil
}

// Of reports whether the memory is registered with domains of s.
func (m *Mem) Of(s *Set) bool { return m.set == s }
