package mpool

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/gucx/gucx/internal/invariants"
)

// Handle is an element of a pool: its number, from 0, as long as it is in use.
type Handle uint32

// Config says how a pool grows. The zero value is ready to use.
type Config struct {
	// ChunkCount is how many elements are added at a time, rounded up to a power of
	// two. 0 means 128.
	ChunkCount int
	// Limit is how many elements there may be at most, rounded up to whole chunks.
	// 0 means 1<<31.
	Limit int
}

const (
	defaultChunkCount = 128
	maxElements       = 1 << 31 // Handle keeps a spare bit for its users
)

// ErrLimit says that a pool has as many elements as its Limit allows.
var ErrLimit = errors.New("pool is at its limit")

// freeList is what both pools are made of: which elements exist and are free.
type freeList struct {
	free   []Handle
	total  int
	limit  int
	shift  uint // log2 of the elements of a chunk
	used   []bool
	growth error // why the last attempt to add a chunk did not succeed
}

func newFreeList(c Config) freeList {
	count := min(max(c.ChunkCount, 0), maxElements)
	if count == 0 {
		count = defaultChunkCount
	}
	shift := uint(bits.Len(uint(count - 1)))
	limit := min(max(c.Limit, 0), maxElements)
	if limit == 0 {
		limit = maxElements
	}
	return freeList{shift: shift, limit: limit}
}

// chunkCount is the number of elements of a chunk.
func (l *freeList) chunkCount() int { return 1 << l.shift }

// place splits a handle into chunk and index within it.
func (l *freeList) place(h Handle) (chunk, index int) {
	return int(h >> l.shift), int(h) & (1<<l.shift - 1)
}

// canGrow says whether the limit permits another chunk.
func (l *freeList) canGrow() error {
	if l.total >= l.limit {
		return ErrLimit
	}
	return nil
}

// addChunk makes the elements of a new chunk free, lowest number on top. It makes
// room for all elements at once, so that Put never allocates.
func (l *freeList) addChunk() {
	first := l.total
	l.total += l.chunkCount()
	if cap(l.free) < l.total {
		grown := make([]Handle, len(l.free), max(l.total, 2*cap(l.free)))
		copy(grown, l.free)
		l.free = grown
	}
	for n := l.total - 1; n >= first; n-- {
		l.free = append(l.free, Handle(n))
	}
	if invariants.Enabled {
		l.used = append(l.used, make([]bool, l.chunkCount())...)
	}
}

// pop takes a free element, if there is one.
func (l *freeList) pop() (Handle, bool) {
	n := len(l.free)
	if n == 0 {
		return 0, false
	}
	h := l.free[n-1]
	l.free = l.free[:n-1]
	if invariants.Enabled {
		l.used[h] = true
	}
	return h, true
}

// push gives an element back.
func (l *freeList) push(h Handle) {
	if invariants.Enabled {
		l.mustBeUsed(h)
		l.used[h] = false
	}
	l.free = append(l.free, h)
}

// mustBeUsed is the check of -tags invariants.
func (l *freeList) mustBeUsed(h Handle) {
	invariants.Assert(int(h) < l.total && l.used[h], "pool element %d is not in use", h)
}

// InUse is the number of elements that are got and not put back.
func (l *freeList) InUse() int { return l.total - len(l.free) }

// Total is the number of elements that exist, in use or free.
func (l *freeList) Total() int { return l.total }

// Err says why the last Get or Reserve that had to add a chunk could not: ErrLimit,
// or the error of the memory. Nil if it could.
func (l *freeList) Err() error { return l.growth }

// close ends the pool; the error tells of elements that are still in use.
func (l *freeList) close() error {
	leaked := l.InUse()
	*l = freeList{shift: l.shift, growth: ErrLimit}
	if leaked != 0 {
		return fmt.Errorf("close pool: %d elements are still in use", leaked)
	}
	return nil
}
