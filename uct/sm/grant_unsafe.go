package sm

import (
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/memop"
)

// visitMax is how many bytes a visit is for at most, so that closing the memory
// waits for 0.4 ms of copying, and a little more on a busy machine, not for a whole
// operation of up to maxZcopy. A system call for as much costs 0.3 % of the copy.
const visitMax = 4 << 20

// regionOf is the region of a key in guard words.
func regionOf(key uint64) uint64 { return key & memop.KeyIndexMask }

// enter begins a visit to the region of key, and returns what ends it. The link has one at a time.
func (l *outLink) enter(key uint64) (idle uint64) { return l.guard.Enter(regionOf(key), l.fullBarrier) }

// grant is what the table said of the region of the latest access, so that the next one
// compares instead of looking it up. While a key is shown nothing of its entry changes, and
// keys are random: the word of the key is all that an access looks at again, with its guard
// up. What a peer that lies has shown was checked against what is mapped.
type grant struct {
	key    uint64
	shown  *atomic.Uint64 // of the entry: the key, as long as it is valid
	access uct.Access
	guard.Span

	// A word may be written, or read, at this many places, from the first byte on: one
	// comparison tells that the access is allowed and the range is in the region. None while
	// nothing is mapped, and where the guard takes a full barrier.
	writes, reads uint64
}

// noGrant allows nothing.
var noGrant = grant{shown: &never}

// find returns where n bytes at raddr are mapped; nil if they are not all in the region, or
// the access is not allowed. The guard is up.
func (g *grant) find(key, raddr, n uint64, need uct.Access) unsafe.Pointer {
	if shown := g.shown.Load(); shown != key || g.key != key || g.access&need == 0 {
		return nil
	}
	return g.At(raddr, n)
}

// words sets at how many places words are.
func (g *grant) words() {
	if g.Len < wordLen {
		return
	}
	n := g.Len - wordLen + 1
	if g.access&uct.AccessRemoteWrite != 0 {
		g.writes = n
	}
	if g.access&uct.AccessRemoteRead != 0 {
		g.reads = n
	}
}

// wordLen is the length in bytes of what most short accesses are for.
const wordLen = 8
