package sm

import (
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/uct"
)

// grant is what the table said of the region of the latest access, so that the next one
// compares instead of looking it up. While a key is shown nothing of its entry changes, and
// keys are random: the word of the key is all that an access looks at again, with its guard
// up. What a peer that lies has shown was checked against what is mapped.
type grant struct {
	key    uint64
	shown  *atomic.Uint64 // of the entry: the key, as long as it is valid
	access uct.Access
	offset uint64         // added to an address it is the place in the region: minus the address of the first byte, in the owner's address space
	length uint64         // bytes from there that are mapped
	base   unsafe.Pointer // where the first byte is mapped

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
	shown, off := g.shown.Load(), raddr+g.offset
	if shown != key || g.key != key || g.access&need == 0 || off > g.length || n > g.length-off {
		return nil
	}
	return unsafe.Add(g.base, off)
}

// words sets at how many places words are.
func (g *grant) words() {
	if g.length < wordLen {
		return
	}
	n := g.length - wordLen + 1
	if g.access&uct.AccessRemoteWrite != 0 {
		g.writes = n
	}
	if g.access&uct.AccessRemoteRead != 0 {
		g.reads = n
	}
}

// wordLen is the length in bytes of what most short accesses are for.
const wordLen = 8
