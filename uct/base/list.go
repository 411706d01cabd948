package base

import "github.com/gucx/gucx/internal/unordered"

// Slot is embedded in the elements of a [List]. It stores the index of the element.
type Slot struct{ place int } // index+1; 0 if the element is in no list

func (s *Slot) slot() *Slot { return s }

// Listed is an element of a [List]: a pointer to a struct that embeds Slot.
type Listed interface{ slot() *Slot }

// List is a list of the open EPs of an iface, in no particular order. Add and Remove
// take constant time. The zero value is empty. An element can be in one list at a
// time.
type List[E Listed] struct{ items []E }

// Len returns the number of elements.
func (l *List[E]) Len() int { return len(l.items) }

// All returns the elements. The slice is valid until the next Add or Remove; the caller must not change it.
func (l *List[E]) All() []E { return l.items }

// Add adds e to the list, unless e is in a list already. It may allocate.
func (l *List[E]) Add(e E) {
	if e.slot().place != 0 {
		return
	}
	l.items = append(l.items, e)
	e.slot().place = len(l.items)
}

// Remove removes e, and moves the last element to its index. It reports whether
// e was in the list.
func (l *List[E]) Remove(e E) bool {
	s := e.slot()
	if s.place == 0 {
		return false
	}
	unordered.Remove(&l.items, s.place-1).slot().place = s.place
	s.place = 0
	return true
}
