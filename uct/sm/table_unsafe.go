package sm

import (
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/memop"
)

// The table segment tells peers what memory there is. Its owner writes it, peers
// map it for reading only.
//
//	0            tableHeader
//	4096         entries of 64 bytes, by the index in the key
type tableHeader struct {
	version atomic.Uint32
	// expedited is 1 if the owner orders its peers' memory accesses by membarrier
	// when it has to, so that they need no barriers of their own.
	expedited  atomic.Uint32
	cookieAddr atomic.Uint64 // for cma.Vec.Probe
	cookie     atomic.Uint64
	arenaUsed  atomic.Uint64 // bytes, from the start, that were ever allocated
}

// entry is a region. key is stored last when it appears, and cleared first when it
// goes; the rest does not change while a peer may be inside.
type entry struct {
	key    atomic.Uint64 // 0: none
	access atomic.Uint32 // uct.Access
	kind   atomic.Uint32 // memArena, memPrivate
	guard.Extent
	_ [24]byte
}

// Kinds of regions.
const (
	memArena   = 1 // peers map it
	memPrivate = 2 // peers use cross-memory attach, or ask
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

// table is a view of a table segment of tableLen bytes: the own one, or a peer's.
type table struct{ base unsafe.Pointer }

func newTable(mem []byte) table { return table{unsafe.Pointer(unsafe.SliceData(mem))} }

func (t table) header() *tableHeader { return (*tableHeader)(t.base) }

// entry is the place of a key; the caller compares entry.key.
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

// covers checks an access and returns where in the region it is.
func (e *entry) covers(key, addr, n uint64, need uct.Access) (off uint64, ok bool) {
	if e.key.Load() != key || uct.Access(e.access.Load())&need == 0 {
		return 0, false
	}
	return e.Find(addr, n)
}
