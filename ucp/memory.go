package ucp

import (
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/uct"
)

// Mem is registered memory: peers can access it with its key, and large transfers from and to it need no copy.
// [Context.MemMap] and [Context.MemAlloc] make it. Any goroutine may call its methods.
type Mem region.Mem

// Bytes returns the memory. If the Mem is from MemAlloc, the caller must not use the bytes after Close.
func (m *Mem) Bytes() []byte { return (*region.Mem)(m).Bytes() }

// Addr returns the remote address of Bytes()[0], for EP.Put and similar calls of peers.
func (m *Mem) Addr() uint64 { return (*region.Mem)(m).Addr() }

// AddrOf returns the remote address of the first byte of buf. buf must be a part of the memory and must not be empty.
func (m *Mem) AddrOf(buf []byte) uint64 { return (*region.Mem)(m).AddrOf(buf) }

// Pack returns a copy of the remote key, for [EP.Unpack] at a peer. The key is rejected after
// Close.
func (m *Mem) Pack() []byte { return (*region.Mem)(m).Pack() }

// Access returns the rights that peers and transports have.
func (m *Mem) Access() uct.Access { return (*region.Mem)(m).Access() }

// Covers reports whether buf is a part of the memory, so that an operation on buf may have the Mem as OpParams.Mem.
func (m *Mem) Covers(buf []byte) bool { return (*region.Mem)(m).Covers(buf) }

// Close deregisters the memory and, if MemAlloc has allocated it, frees it. After it has returned nil, no peer and no
// transport accesses the memory. It blocks until accesses in progress have ended, for each transport at most
// ucs.RevokeLimit. If an access has not ended then, it returns an error that wraps [ucs.InUseError]: no new access begins,
// but the caller must not reuse the memory before it has called Close again with success. Requests that use the memory as
// their local buffer must be complete. After Close has returned nil, further calls have no effect and return nil.
func (m *Mem) Close() error { return (*region.Mem)(m).Close() }

// MemMap registers buf with every memory domain, with all access rights. buf must not be empty and must not be on a
// goroutine's stack. buf belongs to the caller. The garbage collector does not free it before Mem.Close. MemMap may block.
// ErrUnsupported if no domain registers memory.
func (c *Context) MemMap(buf []byte) (*Mem, error) { return c.MemMapAccess(buf, uct.AccessAll) }

// MemMapAccess is MemMap with the given access rights of peers and transports.
func (c *Context) MemMapAccess(buf []byte, access uct.Access) (*Mem, error) {
	m, err := c.memory.Register(buf, access)
	return (*Mem)(m), err
}

// MemAlloc allocates n > 0 zeroed bytes, page-aligned, and registers them with every memory domain, with all access rights.
// The memory is from the domain whose memory peers access fastest (uct.MDAttr.AllocReach). Over shared memory and InfiniBand
// peers access it without the CPU of this process. MemAlloc may block. ErrInvalidParam for another n.
func (c *Context) MemAlloc(n int) (*Mem, error) { return c.MemAllocAccess(n, uct.AccessAll) }

// MemAllocAccess is MemAlloc with the given access rights of peers and transports.
func (c *Context) MemAllocAccess(n int, access uct.Access) (*Mem, error) {
	m, err := c.memory.Alloc(n, access)
	return (*Mem)(m), err
}
