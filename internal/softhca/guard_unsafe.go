package softhca

import (
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/internal/softhca/internal/table"
)

// queueGuard names the region of a peer's memory that a QP of this process is accessing. It
// is in the link segment; the QP writes it, the owner of the memory reads it.
type queueGuard struct {
	guard.Word
	// srqn is the XRC SRQ of the receive that is being filled. Visits that fill no receive do
	// not change it.
	srqn atomic.Uint32
	_    [guardLen - 12]byte
}

var _ = [1]struct{}{}[unsafe.Sizeof(queueGuard{})-guardLen]

// unknownRegion is the region in a guard while the visit looks up the key. It is no valid key.
const unknownRegion = guard.RegionMask

var _ = [unknownRegion - table.MaxMR<<8]struct{}{}

// enter begins a visit to the region of key, and returns the argument of Leave. A QP has one
// visit at a time. enter is a full barrier, as the peer executes none on this CPU.
func (g *queueGuard) enter(key uint32) (idle uint64) {
	return g.Enter(uint64(key)&guard.RegionMask, true)
}

// enterQueue is enter for a visit that fills a receive of an XRC SRQ in the region of key. While
// the visit looks up the key, key is 0.
func (g *queueGuard) enterQueue(srqn, key uint32) (idle uint64) {
	mmio.StoreRelease32(unsafe.Pointer(&g.srqn), srqn)
	if key == 0 {
		key = unknownRegion
	}
	return g.enter(key)
}

// look returns the visit of a peer in progress, with the XRC SRQ as its tag, and the region; 0 if
// there is none. linkMu is held.
func (g *queueGuard) look(l *inLink) (v guard.Visit, region uint64) {
	v, region = guard.Look(l, &g.Word)
	v.Tag = g.srqn.Load()
	if region != 0 && v.Over() { // the tag may be that of a later visit
		return v, 0
	}
	return v, region
}
