// Package sparse has tables of pointers by number that are read without a lock. A table allocates memory by pages, for the
// numbers in use: a device has numbers for hundreds of thousands of regions, few of
// them in use, and the garbage collector would scan an element for each.
package sparse

import "sync/atomic"

// pageLen is the number of pointers of a page, which has 4 KiB.
const pageLen = 512

type page[T any] [pageLen]atomic.Pointer[T]

// Table maps the numbers below its length to pointers, all nil at first. Any goroutine may call Load at any
// time; calls of Store and Swap must not be concurrent. Pages are never freed.
type Table[T any] struct{ pages []atomic.Pointer[page[T]] }

// New returns a table for the numbers below n, which is a multiple of 512.
func New[T any](n int) Table[T] {
	return Table[T]{make([]atomic.Pointer[page[T]], n/pageLen)}
}

// Load returns the pointer at i, which is below the table's length.
func (t *Table[T]) Load(i uint32) *T {
	if p := t.pages[i/pageLen].Load(); p != nil {
		return p[i%pageLen].Load()
	}
	return nil
}

// Store sets the pointer at i.
func (t *Table[T]) Store(i uint32, v *T) { t.Swap(i, v) }

// Swap sets the pointer at i and returns what was there.
func (t *Table[T]) Swap(i uint32, v *T) *T {
	at := &t.pages[i/pageLen]
	p := at.Load()
	switch {
	case p == nil && v == nil:
		return nil
	case p == nil:
		p = new(page[T])
		at.Store(p)
	}
	return p[i%pageLen].Swap(v)
}
