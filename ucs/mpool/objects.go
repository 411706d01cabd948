package mpool

import "github.com/gucx/gucx/internal/invariants"

// Objects is a pool of Go values. An object stays at its address for the life of
// the pool. Make one with NewObjects.
type Objects[T any] struct {
	freeList
	chunks [][]T
}

// NewObjects returns an empty pool; the first Get or Reserve adds a chunk.
func NewObjects[T any](c Config) *Objects[T] {
	return &Objects[T]{freeList: newFreeList(c)}
}

// Get takes an object: a zero one, or one as it was put back. It returns nil when
// the pool is at its limit.
func (p *Objects[T]) Get() (*T, Handle) {
	h, ok := p.pop()
	if !ok {
		if !p.grow() {
			return nil, 0
		}
		h, _ = p.pop()
	}
	chunk, index := p.place(h)
	return &p.chunks[chunk][index], h
}

// At is the object of a handle that is in use. The caller knows that the handle is
// from this pool: a number that comes from a peer or a device must be compared with
// Total first.
func (p *Objects[T]) At(h Handle) *T {
	if invariants.Enabled {
		p.mustBeUsed(h)
	}
	chunk, index := p.place(h)
	return &p.chunks[chunk][index]
}

// Put gives an object back. Clear its pointers first, or they keep alive what they
// point to.
func (p *Objects[T]) Put(h Handle) { p.push(h) }

// Reserve adds chunks until n more objects can be got without allocating. The
// error is ErrLimit.
func (p *Objects[T]) Reserve(n int) error {
	for len(p.free) < n {
		if !p.grow() {
			return p.growth
		}
	}
	return nil
}

// Close forgets the objects. The error says how many are still in use; the pool is
// closed even so, and Get returns nil from then on.
func (p *Objects[T]) Close() error {
	p.chunks = nil
	return p.close()
}

// grow adds a chunk.
func (p *Objects[T]) grow() bool {
	if p.growth = p.canGrow(); p.growth != nil {
		return false
	}
	p.chunks = append(p.chunks, make([]T, p.chunkCount()))
	p.addChunk()
	return true
}
