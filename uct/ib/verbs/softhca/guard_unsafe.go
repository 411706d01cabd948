package softhca

import (
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/uct/ib/verbs/softhca/internal/table"
)

// queueGuard tells a peer which region of its memory a QP of this process is accessing. It
// is in the link segment; the QP writes it, the owner of the memory reads it.
type queueGuard struct {
	guard.Word
	// srqn is the XRC SRQ to which the receive belongs that is being filled; a visit that
	// fills none leaves it alone.
	srqn atomic.Uint32
	_    [guardLen - 12]byte
}

var _ = [1]struct{}{}[unsafe.Sizeof(queueGuard{})-guardLen]

// unknownRegion is in guards for a visit that finds out which region it is about. It is no key.
const unknownRegion = guard.RegionMask

var _ = [unknownRegion - table.MaxMR<<8]struct{}{}

// enter begins a visit to the region of key, and returns what Leave needs. The QP has
// one at a time. It is a full barrier, as a peer does not execute one on this CPU.
func (g *queueGuard) enter(key uint32) (idle uint64) {
	return g.Enter(uint64(key)&guard.RegionMask, true)
}

// enterQueue is enter for a visit that fills a receive of an XRC SRQ, which is in the region
// of key, or finds out which that is: key is 0.
func (g *queueGuard) enterQueue(srqn, key uint32) (idle uint64) {
	mmio.StoreRelease32(unsafe.Pointer(&g.srqn), srqn)
	if key == 0 {
		key = unknownRegion
	}
	return g.enter(key)
}

// look returns the visit of a peer that is in progress, with the XRC SRQ as its tag, and the region; 0 if
// there is none. linkMu is held.
func (g *queueGuard) look(l *inLink) (v guard.Visit, region uint64) {
	v, region = guard.Look(l, &g.Word)
	v.Tag = g.srqn.Load()
	if region != 0 && v.Over() { // the tag may be that of a later one
		return v, 0
	}
	return v, region
}
