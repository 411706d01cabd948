// Package handle gives values numbers that may leave the process and come back: a
// number that is late, or made up, finds nothing instead of another value.
package handle

import "iter"

// Table names values by handles. A handle has the index of a place in its low bits
// and, above, how often the place was used, so that a handle that has ended does not
// find the next value of its place. It is never 0. The zero value is a table whose
// handles have 64 bits, 32 of them for the index. Find does not allocate. Not safe for
// concurrent use.
type Table[T comparable] struct {
	slots []slot[T]
	free  []uint32
	n     int
	mask  uint64 // of the index; 0: not chosen yet
	limit uint64 // largest handle
}

// slot is a place. It keeps the handle of its last value.
type slot[T comparable] struct {
	value  T // the zero value: the place is free
	handle uint64
}

// Make returns a table with handles of so many bits, indexBits of them for the index:
// at most 32, and fewer than bits.
func Make[T comparable](indexBits, bits int) Table[T] {
	return Table[T]{mask: 1<<indexBits - 1, limit: 1<<bits - 1}
}

// Add enters v, which is not the zero value, and returns its handle; 0 if the table is
// full.
func (t *Table[T]) Add(v T) uint64 {
	if t.mask == 0 {
		*t = Make[T](32, 64)
	}
	if len(t.free) == 0 {
		i := uint64(len(t.slots))
		if i > t.mask {
			return 0
		}
		t.slots = append(t.slots, slot[T]{handle: i})
		t.free = append(t.free, uint32(i))
	}
	last := len(t.free) - 1
	i := uint64(t.free[last])
	t.free = t.free[:last]
	s := &t.slots[i]
	if s.handle = (s.handle + t.mask + 1) & t.limit; s.handle <= t.mask {
		s.handle = t.mask + 1 + i // the uses begin again with 1
	}
	s.value = v
	t.n++
	return s.handle
}

// Find returns the value of a handle that anyone may have made up; the zero value if
// there is none.
func (t *Table[T]) Find(handle uint64) (v T) {
	if i := handle & t.mask; i < uint64(len(t.slots)) && t.slots[i].handle == handle {
		v = t.slots[i].value
	}
	return v
}

// Remove ends a handle; false if it has no value.
func (t *Table[T]) Remove(handle uint64) bool {
	var none T
	if t.Find(handle) == none {
		return false
	}
	i := handle & t.mask
	t.slots[i].value = none
	t.free = append(t.free, uint32(i))
	t.n--
	return true
}

// Len is the number of values.
func (t *Table[T]) Len() int { return t.n }

// Places is the number of places: the most values that there were at a time.
func (t *Table[T]) Places() int { return len(t.slots) }

// All is the values in the order of their places. The loop may remove values, and add
// some, which it may see or not.
func (t *Table[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		var none T
		for i := 0; i < len(t.slots); i++ {
			if v := t.slots[i].value; v != none && !yield(v) {
				return
			}
		}
	}
}
