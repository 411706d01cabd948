package ucp

import (
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/uct"
)

// Mem is memory that peers can reach and that large transfers move without a copy. Bytes
// is the memory, Addr the address of its first byte that peers name, Pack its remote key
// for EP.Unpack, and Close gives it back. Methods may be called by any goroutine.
type Mem = region.Mem

// MemMap registers buf with every memory domain, with all rights. buf must not be
// empty nor lie on a goroutine's stack; it stays the caller's and is kept reachable
// until Mem.Close. Blocking. ErrUnsupported if no domain registers memory.
func (c *Context) MemMap(buf []byte) (*Mem, error) { return c.MemMapAccess(buf, uct.AccessAll) }

// MemMapAccess is MemMap with the rights that peers and transports get.
func (c *Context) MemMapAccess(buf []byte, access uct.Access) (*Mem, error) {
	return c.memory.Register(buf, access)
}

// MemAlloc allocates n zeroed bytes, page aligned, that the transports reach best:
// on transports that move bytes by themselves, peers reach it without the help of
// this process. Of several domains that allocate, the one whose memory peers reach
// soonest does it (uct.MDAttr.AllocReach), whatever the order of the components. All
// rights. Blocking. ErrInvalidParam unless n > 0.
func (c *Context) MemAlloc(n int) (*Mem, error) { return c.MemAllocAccess(n, uct.AccessAll) }

// MemAllocAccess is MemAlloc with the rights that peers and transports get.
func (c *Context) MemAllocAccess(n int, access uct.Access) (*Mem, error) {
	return c.memory.Alloc(n, access)
}
