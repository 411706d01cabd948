package sm

import (
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/memop"
)

// The table segment lists the memory regions for peers. Its owner writes it, peers
// map it read-only.
//
//	0            tableHeader
//	4096         entries of 64 bytes, by the index in the key
type tableHeader struct {
	version atomic.Uint32
	// expedited is 1 if the owner uses membarrier to order its peers' memory accesses,
	// so that the peers need no barriers.
	expedited  atomic.Uint32
	cookieAddr atomic.Uint64 // for cma.Vec.Probe
	cookie     atomic.Uint64
	arenaUsed  atomic.Uint64 // number of bytes from the start of the arena that have been allocated so far
}

// entry describes a region. key is stored last when the region is added, and cleared first when it
// is removed; the other fields do not change while a peer may access the region.
type entry struct {
	key    atomic.Uint64 // 0 if there is no region
	access atomic.Uint32 // uct.Access
	kind   atomic.Uint32 // memArena, memPrivate
	guard.Extent
	_ [24]byte
}

// Types of regions.
const (
	memArena   = 1 // peers map it
	memPrivate = 2 // peers use cross-memory attach, or send requests
)

const (
	entryLen    = 64
	maxRegions  = memop.KeyIndexMask + 1
	tableHdrLen = 4096
	tableLen    = tableHdrLen + maxRegions*entryLen
)

var (
	_ = [1]struct{}{}[unsafe.Sizeof(entry{})-entryLen]
	_ = [tableHdrLen]struct{}{}[unsafe.Sizeof(tableHeader{})]
)

// table is a view of a table segment of tableLen bytes, of this process or of a peer.
type table struct{ base unsafe.Pointer }

func newTable(mem []byte) table { return table{unsafe.Pointer(unsafe.SliceData(mem))} }

func (t table) header() *tableHeader { return (*tableHeader)(t.base) }

// entry returns the entry for a key; the caller must compare entry.key.
func (t table) entry(key uint64) *entry {
	return (*entry)(unsafe.Add(t.base, tableHdrLen+uintptr(key&memop.KeyIndexMask)*entryLen))
}

// show makes a region visible to peers.
func (e *entry) show(key uint64, access uct.Access, kind uint32, addr, length, offset uint64) {
	e.access.Store(uint32(access))
	e.kind.Store(kind)
	e.Set(addr, length, offset)
	e.key.Store(key)
}

// covers checks an access and returns its offset in the region.
func (e *entry) covers(key, addr, n uint64, need uct.Access) (off uint64, ok bool) {
	if e.key.Load() != key || uct.Access(e.access.Load())&need == 0 {
		return 0, false
	}
	return e.Find(addr, n)
}
