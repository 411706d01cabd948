package base

import "github.com/gucx/gucx/internal/unordered"

// Slot is embedded in the elements of a [List]; it remembers the place.
type Slot struct{ place int } // index+1; 0: in no list

func (s *Slot) slot() *Slot { return s }

// Listed is an element of a [List]: a pointer to a struct that embeds Slot.
type Listed interface{ slot() *Slot }

// List holds the open EPs of an iface, in no particular order. Add and Remove
// take constant time. The zero value is empty. An element is in one list at a
// time.
type List[E Listed] struct{ items []E }

// Len is the number of elements.
func (l *List[E]) Len() int { return len(l.items) }

// All is the elements: valid, and not to be changed, until the next Add or Remove.
func (l *List[E]) All() []E { return l.items }

// Add puts e into the list; nothing happens if e is in a list already. It may
// allocate.
func (l *List[E]) Add(e E) {
	if e.slot().place != 0 {
		return
	}
	l.items = append(l.items, e)
	e.slot().place = len(l.items)
}

// Remove takes e out, putting the last element in its place, and reports whether
// it was there.
func (l *List[E]) Remove(e E) bool {
	s := e.slot()
	if s.place == 0 {
		return false
	}
	unordered.Remove(&l.items, s.place-1).slot().place = s.place
	s.place = 0
	return true
}
