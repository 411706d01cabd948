// Package unordered removes elements of slices in constant time.
package unordered

// Remove removes the element at a place of a slice in no particular order. It moves the last element there,
// clears the place that the last one leaves, and returns the element that is at the place now, so that the
// caller can note that. If the last element is removed, it returns that one.
func Remove[E any](s *[]E, at int) (moved E) {
	last := len(*s) - 1
	moved = (*s)[last]
	(*s)[at] = moved
	clear((*s)[last:])
	*s = (*s)[:last]
	return moved
}
