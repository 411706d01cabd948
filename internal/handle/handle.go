// Package handle has tables that map numbers to values, for numbers that a peer or a device returns: a
// number whose value was removed, or that was never assigned, finds no value.
package handle

import "iter"

const (
	indexBits = 32 // of a handle of a Table: the index of the place
	indexMask = 1<<indexBits - 1
)

// Table maps handles that a peer cannot guess to values. A handle has 64 bits: the index
// of a place in the lower 32, and above it a tag from crypto/rand, which is different
// for each use of the place. So a peer that sends a handle has received it before: the
// handle is a capability, and must be sent to its owner only. Handles and tags are never 0.
// A handle that was removed finds another value with a probability of
// 2^-32 for each later use of its place.
//
// The zero value is empty. Find does not allocate. Not safe for concurrent use.
type Table[T comparable] struct {
	places[T]
	tags tags
}

// Add adds v, which is not the zero value, and returns its handle; 0 if the table is
// full, with 2^32 values.
func (t *Table[T]) Add(v T) uint64 {
	if t.tags.remaining == 0 {
		t.tags.fill()
	}
	if len(t.free) == 0 && !t.grow(indexMask) {
		return 0
	}
	i := t.pop()
	s := &t.slots[i]
	s.value, s.handle = v, uint64(t.tags.next())<<indexBits|uint64(i)
	return s.handle
}

// Find returns the value of a handle from an untrusted peer; the zero value if
// there is none.
func (t *Table[T]) Find(handle uint64) (v T) {
	if i := handle & indexMask; i < uint64(len(t.slots)) && t.slots[i].handle == handle {
		v = t.slots[i].value
	}
	return v
}

// Remove removes the value of a handle; false if there is none.
func (t *Table[T]) Remove(handle uint64) bool {
	return t.remove(handle, handle&indexMask)
}

// Counted is a Table with handles of fewer than 64 bits: the index of a place in the lower
// bits, and above it the number of times that the place was used. The next handle is easy
// to guess. So Counted is only for handles that do not leave the process, and for handles whose value
// is checked against the connection over which they arrived. Use Make to make
// one.
type Counted[T comparable] struct {
	places[T]
	mask  uint64 // of the index
	limit uint64 // largest handle
}

// Make returns a table with handles of the given number of bits. indexBits of them are for the index:
// at most 32, and fewer than bits.
func Make[T comparable](indexBits, bits int) Counted[T] {
	return Counted[T]{mask: 1<<indexBits - 1, limit: 1<<bits - 1}
}

// Add adds v, which is not the zero value, and returns its handle; 0 if the table is
// full.
func (t *Counted[T]) Add(v T) uint64 {
	if len(t.free) == 0 && !t.grow(t.mask) {
		return 0
	}
	i := t.pop()
	s := &t.slots[i]
	if s.handle = (s.handle + t.mask + 1) & t.limit; s.handle <= t.mask {
		s.handle = t.mask + 1 + uint64(i) // the uses begin again with 1
	}
	s.value = v
	return s.handle
}

// Find is as Table.Find.
func (t *Counted[T]) Find(handle uint64) (v T) {
	if i := handle & t.mask; i < uint64(len(t.slots)) && t.slots[i].handle == handle {
		v = t.slots[i].value
	}
	return v
}

// Remove removes the value of a handle; false if there is none.
func (t *Counted[T]) Remove(handle uint64) bool { return t.remove(handle, handle&t.mask) }

// places are values by index.
type places[T comparable] struct {
	slots []slot[T]
	free  []uint32
	n     int
}

// slot is a place. When its value is removed, its last handle remains.
type slot[T comparable] struct {
	value  T // the zero value: the place is free
	handle uint64
}

// grow adds a free place when there is none; false if its index would be above last.
//
//go:noinline
func (p *places[T]) grow(last uint64) bool {
	i := uint64(len(p.slots))
	if i > last {
		return false
	}
	p.slots = append(p.slots, slot[T]{handle: i})
	p.free = append(p.free, uint32(i))
	return true
}

// pop returns the index of a free place, of which there is one.
func (p *places[T]) pop() uint32 {
	end := len(p.free) - 1
	i := p.free[end]
	p.free = p.free[:end]
	p.n++
	return i
}

// remove removes the value of a handle with that index; false if there is none.
func (p *places[T]) remove(handle, index uint64) bool {
	var none T
	if index >= uint64(len(p.slots)) {
		return false
	}
	s := &p.slots[index]
	if s.handle != handle || s.value == none {
		return false
	}
	s.value = none
	p.free = append(p.free, uint32(index))
	p.n--
	return true
}

// Len returns the number of values.
func (p *places[T]) Len() int { return p.n }

// Places returns the number of places: the maximum number of values so far.
func (p *places[T]) Places() int { return len(p.slots) }

// All iterates over the values in the order of their places. The loop may remove values and add
// others, which the iteration may include or not.
func (p *places[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		var none T
		for i := 0; i < len(p.slots); i++ {
			if v := p.slots[i].value; v != none && !yield(v) {
				return
			}
		}
	}
}
