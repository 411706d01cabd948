package softhca

import (
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/mmio"
)

// guard tells a peer which region of its memory a QP of this process is accessing. It
// is in the link segment; the QP writes it, the owner of the memory reads it.
//
// The owner takes a right back by changing the table, and looks at the guards then.
// The QP raises its guard, and looks at the table then. So one sees the other: either
// the QP finds that the right is gone, or the owner finds the visit.
type guard struct {
	seq atomic.Uint32 // odd during a visit, another number for each
	key atomic.Uint32 // the rkey of the region; changes only while seq is even
	// srqn is the XRC SRQ to which the receive belongs that is being filled; a visit that
	// fills none leaves it alone.
	srqn atomic.Uint32
	_    [guardLen - 12]byte
}

var _ = [1]struct{}{}[unsafe.Sizeof(guard{})-guardLen]

// enter begins a visit to the region of key, and returns what leave needs. The QP has
// one at a time. Storing the key is ordered before, and after the end of the visit
// before; the add is a full barrier, which pairs with the one in hca.visits.
func (g *guard) enter(key uint32) (seq uint32) {
	mmio.StoreRelease32(unsafe.Pointer(&g.key), key)
	return g.seq.Add(1)
}

// enterQueue is enter for a visit that fills a receive of an XRC SRQ, which is in the region
// of key, or finds out which that is: key is 0.
func (g *guard) enterQueue(srqn, key uint32) (seq uint32) {
	mmio.StoreRelease32(unsafe.Pointer(&g.srqn), srqn)
	return g.enter(key)
}

// leave ends the visit, after its last access.
func (g *guard) leave(seq uint32) { mmio.StoreRelease32(unsafe.Pointer(&g.seq), seq+1) }

// visiting reads the guard of a peer; false if there is no visit, or if the one that
// there was has ended meanwhile.
func (g *guard) visiting() (seq, key, srqn uint32, ok bool) {
	seq, key, srqn = g.seq.Load(), g.key.Load(), g.srqn.Load()
	return seq, key, srqn, seq&1 != 0 && g.seq.Load() == seq
}

// section is a lock whose holder says, now and then, that it has no pointer into
// registered memory: who takes memory back need not wait until the lock is free,
// which may be rare under load.
type section struct {
	spinLock
	passed atomic.Uint32 // how often it was said; only the holder writes
}

// quiescent says so. A full barrier must come before the next look at a key: between
// that and a plain store the memory could be taken back unseen.
func (s *section) quiescent() { mmio.StoreRelease32(unsafe.Pointer(&s.passed), s.passed.Load()+1) }

// grace returns when the holder of the section at the time of the call has no pointer
// any more that it had then. What denies new ones must have been stored atomically.
func (s *section) grace() {
	for seen := s.passed.Load(); s.held.Load() != 0 && s.passed.Load() == seen; {
		yield()
	}
}
