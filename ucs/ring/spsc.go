package ring

import "math/bits"

// SPSC is a ring with one producer and one consumer. Make it with NewSPSC.
type SPSC[T Word] struct {
	slot []T // length is a power of two
	prod cursor
	cons cursor
}

// NewSPSC returns a ring of depth elements, rounded up to a power of two. A depth
// below 1 counts as 1.
func NewSPSC[T Word](depth int) *SPSC[T] {
	return &SPSC[T]{slot: make([]T, powerOfTwo(depth))}
}

// powerOfTwo rounds up.
func powerOfTwo(n int) int {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}

// Depth is how many elements fit.
func (r *SPSC[T]) Depth() int { return len(r.slot) }

// Len is how many elements are in the ring. The other side may change it at once;
// for the producer it is an upper bound, for the consumer a lower one.
func (r *SPSC[T]) Len() int { return int(r.prod.load() - r.cons.load()) }

// Push stores as many of v as fit, in order, and publishes them with one store. It
// returns their number. Producer only.
func (r *SPSC[T]) Push(v []T) int {
	tail, depth := r.prod.pos, uint64(len(r.slot))
	free := depth - (tail - r.prod.seen)
	if free < uint64(len(v)) {
		r.prod.seen = r.cons.load()
		free = depth - (tail - r.prod.seen)
	}
	v = v[:min(uint64(len(v)), free)]
	slot := r.slot
	if len(v) == 0 || len(slot) == 0 {
		return 0
	}
	for i, x := range v {
		slot[uint(tail+uint64(i))&uint(len(slot)-1)] = x
	}
	r.prod.publish(tail + uint64(len(v)))
	return len(v)
}

// PushOne stores x and says whether it fitted. Producer only.
func (r *SPSC[T]) PushOne(x T) bool {
	tail, depth := r.prod.pos, uint64(len(r.slot))
	if tail-r.prod.seen >= depth {
		r.prod.seen = r.cons.load()
		if tail-r.prod.seen >= depth {
			return false
		}
	}
	slot := r.slot
	if len(slot) == 0 { // never: it spares the check of the index
		return false
	}
	slot[uint(tail)&uint(len(slot)-1)] = x
	r.prod.publish(tail + 1)
	return true
}

// Pop takes up to len(out) elements, in order, and gives their slots back with one
// store. It returns their number; 0 means that the ring is empty. Consumer only.
func (r *SPSC[T]) Pop(out []T) int {
	head := r.cons.pos
	have := r.cons.seen - head
	if have < uint64(len(out)) {
		r.cons.seen = r.prod.load()
		have = r.cons.seen - head
	}
	out = out[:min(uint64(len(out)), have)]
	slot := r.slot
	if len(out) == 0 || len(slot) == 0 {
		return 0
	}
	for i := range out {
		out[i] = slot[uint(head+uint64(i))&uint(len(slot)-1)]
	}
	r.cons.publish(head + uint64(len(out)))
	return len(out)
}
