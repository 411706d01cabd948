package ring

import (
	"sync/atomic"

	"golang.org/x/sys/cpu"
)

// MPSC is a ring with many producers and one consumer. Make it with NewMPSC. The
// elements of one producer come out in its order; those of several in the order in
// which they took their slots. A producer that is preempted between taking a slot
// and filling it holds up the consumer there, but no other producer.
//
// A slot's turn says whose it is: n when it is free for the element with number n,
// n+1 when that element is in it.
type MPSC[T Word] struct {
	slot []mpscSlot[T] // length is a power of two
	_    cpu.CacheLinePad
	tail atomic.Uint64 // number of the next element; all producers
	_    cpu.CacheLinePad
	head uint64 // number of the element to take; consumer only
	_    cpu.CacheLinePad
}

type mpscSlot[T Word] struct {
	turn turn
	x    T
}

// NewMPSC returns a ring of depth elements, rounded up to a power of two. A depth
// below 2 counts as 2, as the turn of a single slot could not tell full from free.
func NewMPSC[T Word](depth int) *MPSC[T] {
	r := &MPSC[T]{slot: make([]mpscSlot[T], powerOfTwo(max(depth, 2)))}
	for i := range r.slot {
		r.slot[i].turn.n = uint64(i)
	}
	return r
}

// Depth is how many elements fit.
func (r *MPSC[T]) Depth() int { return len(r.slot) }

// Push stores x and says whether it fitted. Any goroutine.
func (r *MPSC[T]) Push(x T) bool {
	n := r.tail.Load()
	for {
		s := &r.slot[n&(uint64(len(r.slot))-1)]
		switch ahead := int64(s.turn.load() - n); {
		case ahead < 0: // still holds the element of the round before
			return false
		case ahead > 0: // somebody else was quicker
			n = r.tail.Load()
		case r.tail.CompareAndSwap(n, n+1):
			s.x = x
			s.turn.publish(n + 1)
			return true
		default:
			n = r.tail.Load()
		}
	}
}

// Pop takes up to len(out) elements and returns their number; 0 means that the ring
// is empty, or that the next slot is taken and not yet filled. Consumer only.
func (r *MPSC[T]) Pop(out []T) int {
	for i := range out {
		s := &r.slot[r.head&(uint64(len(r.slot))-1)]
		if s.turn.load() != r.head+1 {
			return i
		}
		out[i] = s.x
		s.turn.publish(r.head + uint64(len(r.slot)))
		r.head++
	}
	return len(out)
}
