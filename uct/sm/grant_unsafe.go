package sm

import (
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/memop"
)

// visitMax limits the bytes of one visit, so that closing the memory
// waits for about 0.4 ms of copying, and not for a whole
// operation of up to maxZcopy. One system call for each visit costs 0.3 % of the copy.
const visitMax = 4 << 20

// regionOf returns the region of a key in guard words.
func regionOf(key uint64) uint64 { return key & memop.KeyIndexMask }

// enter begins a visit to the region of key, and returns the argument for guard.Leave, which ends it. The link has one
// visit at a time.
func (l *outLink) enter(key uint64) (idle uint64) { return l.guard.Enter(regionOf(key), l.fullBarrier) }

// grant caches the table entry of the region of the latest access. While a key is in the table, its
// entry does not change, and keys are random. So an access only compares the key in the table again, after it has set its
// guard. The span was checked against the mapping, because a peer may write a false entry.
type grant struct {
	key    uint64
	shown  *atomic.Uint64 // the key in the table entry; another value when the key is invalid
	access uct.Access
	guard.Span

	// Number of offsets, from 0, at which wordLen bytes may be written or read: one
	// comparison checks the access right and the range. 0 while
	// nothing is mapped, and if the guard needs a full barrier.
	writes, reads uint64
}

// noGrant permits no access.
var noGrant = grant{shown: &never}

// find returns the mapped address of the n bytes at raddr; nil if they are not in the region, or
// the access is not permitted. The guard is set.
func (g *grant) find(key, raddr, n uint64, need uct.Access) unsafe.Pointer {
	if shown := g.shown.Load(); shown != key || g.key != key || g.access&need == 0 {
		return nil
	}
	return g.At(raddr, n)
}

// words sets writes and reads.
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

// wordLen is the most frequent length of short accesses, in bytes.
const wordLen = 8
