package regcache

import (
	"io"
	"slices"
)

// index finds entries with the same access by address. They are sorted by start, and none covers
// another one, so they are also sorted by end.
type index[M io.Closer] []slot[M]

type slot[M io.Closer] struct {
	span // of e, copied for the search
	e    *Entry[M]
}

// after returns the number of entries that start at or before addr.
func (x index[M]) after(addr uintptr) int {
	low, high := 0, len(x)
	for low < high {
		mid := int(uint(low+high) / 2)
		if x[mid].start <= addr {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// find returns the entry that covers s, or nil.
func (x index[M]) find(s span) *Entry[M] {
	if i := x.after(s.start); i > 0 && x[i-1].covers(s) {
		return x[i-1].e
	}
	return nil
}

// insert adds e, which no entry covers. It returns the entries that e covers, which it removes.
func (x *index[M]) insert(e *Entry[M]) (replaced []*Entry[M]) {
	first := x.after(e.start)
	if first > 0 && e.covers((*x)[first-1].span) {
		first-- // the previous entry starts at the same address
	}
	last := first
	for last < len(*x) && e.covers((*x)[last].span) {
		replaced = append(replaced, (*x)[last].e)
		last++
	}
	*x = slices.Replace(*x, first, last, slot[M]{e.span, e})
	return replaced
}

// remove removes e, which must be in the index.
func (x *index[M]) remove(e *Entry[M]) {
	i := x.after(e.start) - 1
	*x = slices.Delete(*x, i, i+1)
}

// overlapping returns the entries that have at least one byte in common with s.
func (x index[M]) overlapping(s span) (found []*Entry[M]) {
	for i := range x {
		if x[i].overlaps(s) {
			found = append(found, x[i].e)
		}
	}
	return found
}
