package ucp

import (
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/uct"
)

// Mem is registered memory: peers reach it with its key, and large transfers from and to it
// move without a copy. It is made by [Context.MemMap] and [Context.MemAlloc]. Any goroutine may
// call its methods.
type Mem region.Mem

// Bytes returns the memory. After Close the caller must not use bytes of MemAlloc.
func (m *Mem) Bytes() []byte { return (*region.Mem)(m).Bytes() }

// Addr returns the remote address of Bytes()[0], as EP.Put and others take it.
func (m *Mem) Addr() uint64 { return (*region.Mem)(m).Addr() }

// AddrOf returns the remote address of the first byte of buf, which must lie in the memory and
// must not be empty.
func (m *Mem) AddrOf(buf []byte) uint64 { return (*region.Mem)(m).AddrOf(buf) }

// Pack returns a copy of the remote key, for [EP.Unpack] at a peer. The key is rejected after
// Close.
func (m *Mem) Pack() []byte { return (*region.Mem)(m).Pack() }

// Access returns the rights that peers and transports have.
func (m *Mem) Access() uct.Access { return (*region.Mem)(m).Access() }

// Covers reports whether buf lies in the memory, so that it may be a buffer of an operation
// with OpParams.Mem.
func (m *Mem) Covers(buf []byte) bool { return (*region.Mem)(m).Covers(buf) }

// Close deregisters the memory and frees what MemAlloc allocated. When it returns nil, no peer
// and no transport accesses the memory any more. It blocks until accesses in progress have
// completed, for each transport at most ucs.RevokeLimit. After that it returns an error that
// wraps [ucs.InUseError]: no new access begins, but the caller must not reuse the memory, and
// calls Close again. Requests that use the memory as their local buffer must have completed.
// A second Close after nil does nothing.
func (m *Mem) Close() error { return (*region.Mem)(m).Close() }

// MemMap registers buf with every memory domain, with all access rights. buf must not be
// empty or on a goroutine's stack. It belongs to the caller, and the Mem keeps it reachable
// until Mem.Close. It blocks. ErrUnsupported if no domain registers memory.
func (c *Context) MemMap(buf []byte) (*Mem, error) { return c.MemMapAccess(buf, uct.AccessAll) }

// MemMapAccess is MemMap with the given access rights of peers and transports.
func (c *Context) MemMapAccess(buf []byte, access uct.Access) (*Mem, error) {
	m, err := c.memory.Register(buf, access)
	return (*Mem)(m), err
}

// MemAlloc allocates n zeroed bytes, page aligned, that the transports reach best:
// on transports that move bytes by themselves, peers reach it without the help of
// this process. Of several domains that allocate, the one whose memory peers reach
// soonest does it (uct.MDAttr.AllocReach), whatever the order of the components. All
// rights. Blocking. ErrInvalidParam unless n > 0.
func (c *Context) MemAlloc(n int) (*Mem, error) { return c.MemAllocAccess(n, uct.AccessAll) }

// MemAllocAccess is MemAlloc with the rights that peers and transports get.
func (c *Context) MemAllocAccess(n int, access uct.Access) (*Mem, error) {
	m, err := c.memory.Alloc(n, access)
	return (*Mem)(m), err
}
