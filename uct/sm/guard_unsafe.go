package sm

import (
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/uct/internal/memop"
)

// A guard word says in which region of the acceptor's domain the dialer is at this
// moment, by store, load, or a system call of cross-memory attach:
//
//	bits  0..15  place of the region in the table; 0: in none
//	bits 16..31  number of the visit, so that one visit is told from the next
//
// The number wraps around: a later visit to the same region may then be taken for the
// one that was seen before, and waited for as well, which is safe.
const (
	visitStep  = 1 << memop.KeyIndexBits
	regionMask = memop.KeyIndexMask
)

// visitMax is how many bytes a visit is for at most, so that closing the memory
// waits for 0.4 ms of copying, and a little more on a busy machine, not for a whole
// operation of up to maxZcopy. A system call for as much costs 0.3 % of the copy.
const visitMax = 4 << 20

// guard is the dialer's side of a guard word.
type guard struct {
	word   *atomic.Uint32
	seq    uint32
	fenced bool
}

// enter precedes the look at the key; pairs with the barrier in MD.visitors.
func (g *guard) enter(key uint64) {
	g.seq += visitStep
	v := g.seq | uint32(key)&regionMask
	if g.fenced {
		g.word.Store(v)
		return
	}
	mmio.StoreRelease32(unsafe.Pointer(g.word), v)
}

// leave follows the last access; pairs with the load in inLink.visit.
func (g *guard) leave() { mmio.StoreRelease32(unsafe.Pointer(g.word), g.seq) }
