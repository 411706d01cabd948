package match

import "github.com/gucx/gucx/internal/invariants"

// ReceiveMasks is how many masks of receives have an index at the same time. A message that
// finds no receive among the first looks in each of them, so they are few; applications use
// fewer: a message-passing library has four (exact, any source, any tag, both). Receives with
// one mask more are in a list that each such message searches, until an index is empty: that
// one is then of the next mask that needs one.
const ReceiveMasks = 8

// scanLimit is how many entries at the front of a list in order are looked at before an
// index is. An entry costs a quarter of what an index does, and those at the front are in the
// cache.
const scanLimit = 4

// Recv is a receive, a part of the caller's record of it. It must not be copied or reused
// while it is in a table.
type Recv[R any] struct {
	Owner R // the caller's
	// Tag and Mask say which messages fit: those whose tag has the bits of Tag
	// where Mask has ones. They must not change while the receive is in a table.
	Tag, Mask uint64

	order link[Recv[R]]   // among all
	same  link[Recv[R]]   // in the index, or among the unindexed
	index *index[Recv[R]] // nil: in none
}

// fits says whether a message with that tag is for r.
func (r *Recv[R]) fits(tag uint64) bool { return (r.Tag^tag)&r.Mask == 0 }

// Ready says, of the earliest receive, whether a message with that tag is for it and TakeFirst can
// take it out, as is nearly always so.
func (r *Recv[R]) Ready(tag uint64) bool { return (r.Tag^tag)&r.Mask == 0 && r.same.prev == nil }

// Seq is the number of a receive that is in a table: from 1, in the order in which receives were
// posted.
func (r *Recv[R]) Seq() uint64 { return r.order.key }

// receives is the side of the receives.
type receives[R any] struct {
	order   queue[Recv[R]]
	seq     uint64 // of the last one that was posted
	indexed uint64 // up to which they are in an index, or unindexed for good

	indexes   [ReceiveMasks]index[Recv[R]]
	used      int            // indexes that ever had entries: the first ones
	unindexed queue[Recv[R]] // those for whose mask there was no index
	steps     uint64         // receives looked at in unindexed, and put into an index
}

func (s *receives[R]) init() {
	for i := range s.indexes {
		s.indexes[i].init()
	}
}

// add posts a receive.
func (s *receives[R]) add(r *Recv[R]) {
	if invariants.Enabled && r.order.prev != nil {
		invariants.Assert(false, "receive %#x/%#x is posted twice", r.Tag, r.Mask)
	}
	s.seq++
	r.order.key = s.seq
	if r.order.entry == nil { // to store it each time would ask the collector
		r.order.entry = r
	}
	s.order.push(&r.order)
}

// remove takes out a receive that is posted.
func (s *receives[R]) remove(r *Recv[R]) {
	s.order.remove(&r.order)
	if r.same.prev != nil {
		s.removeFromIndex(r)
	}
}

// take takes out the earliest receive that a message with that tag fits; nil: none fits. There
// are receives. The first one, not indexed, is nearly always it, and goes in a few instructions.
func (s *receives[R]) take(tag uint64) *Recv[R] {
	if r := s.order.head.entry; r.Ready(tag) {
		s.order.shift(&r.order)
		return r
	}
	return s.takeAny(tag)
}

// takeAny is take for wherever the receive is.
func (s *receives[R]) takeAny(tag uint64) *Recv[R] {
	r := s.find(tag)
	if r != nil {
		s.remove(r)
	}
	return r
}

// find is the earliest receive that a message with that tag fits; nil: none.
func (s *receives[R]) find(tag uint64) *Recv[R] {
	l := s.order.head
	for range scanLimit {
		if l == nil {
			return nil
		}
		if l.entry.fits(tag) {
			return l.entry
		}
		l = l.next
	}
	if l == nil {
		return nil
	}
	return s.search(tag)
}

// search is find by the indexes.
func (s *receives[R]) search(tag uint64) (best *Recv[R]) {
	s.indexNew()
	for i := range s.indexes[:s.used] {
		if r := s.indexes[i].first(tag); r != nil && (best == nil || r.Seq() < best.Seq()) {
			best = r
		}
	}
	for l := s.unindexed.head; l != nil && (best == nil || l.entry.Seq() < best.Seq()); l = l.next {
		s.steps++
		if l.entry.fits(tag) {
			return l.entry
		}
	}
	return best
}

// indexNew puts those that were posted since the last time into an index.
func (s *receives[R]) indexNew() {
	for l := s.order.after(s.indexed); l != nil; l = l.next {
		s.steps++
		s.addToIndex(l.entry)
	}
	s.indexed = s.seq
}

// addToIndex puts a receive into the index of its mask.
func (s *receives[R]) addToIndex(r *Recv[R]) {
	if r.index = s.indexOf(r.Mask); r.index != nil {
		r.index.add(&r.same, r, r.Tag)
		return
	}
	r.same.entry = r
	s.unindexed.push(&r.same)
}

// removeFromIndex takes a receive out of where addToIndex has put it.
func (s *receives[R]) removeFromIndex(r *Recv[R]) {
	if r.index != nil {
		r.index.remove(&r.same)
		r.index = nil
		return
	}
	s.unindexed.remove(&r.same)
	r.same.entry = nil
}

// indexOf is the index of a mask, an empty one if it has none; nil if none is empty.
func (s *receives[R]) indexOf(mask uint64) *index[Recv[R]] {
	empty := -1
	for i := range s.indexes {
		x := &s.indexes[i]
		if x.keys > 0 && x.mask == mask {
			return x
		}
		if x.keys == 0 && empty < 0 {
			empty = i
		}
	}
	if empty < 0 {
		return nil
	}
	s.used = max(s.used, empty+1)
	s.indexes[empty].mask = mask
	return &s.indexes[empty]
}
