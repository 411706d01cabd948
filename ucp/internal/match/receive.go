package match

import "github.com/gucx/gucx/internal/invariants"

// ReceiveMasks is the maximum number of masks for which receives have an index at the same time. A message that
// does not match one of the first receives looks in each index, so there are few. Applications use
// fewer masks: a message-passing library has four (exact, any source, any tag, both). Receives with
// a further mask are in a list that each such message searches, until an index is empty and
// is reused for the next such mask.
const ReceiveMasks = 8

// scanLimit is the number of entries at the front of a list in order that a search compares before it uses an
// index. Comparing an entry costs a quarter of a lookup in an index, and the first entries are in the CPU's
// cache.
const scanLimit = 4

// Recv is a receive, a part of the caller's record. It must not be copied or reused
// while it is in a table.
type Recv[R any] struct {
	Owner R // the caller's
	// Tag and Mask say which messages fit: those whose tag has the bits of Tag
	// where Mask has ones. They must not change while the receive is in a table.
	Tag, Mask uint64

	order link[Recv[R]]   // among all receives
	same  link[Recv[R]]   // in the index, or among the unindexed
	index *index[Recv[R]] // nil: in none
}

// fits reports whether a message with that tag matches r.
func (r *Recv[R]) fits(tag uint64) bool { return (r.Tag^tag)&r.Mask == 0 }

// Ready reports whether r, which must be the earliest receive, matches a message with that tag and TakeFirst can
// remove it. This is nearly always so.
func (r *Recv[R]) Ready(tag uint64) bool { return (r.Tag^tag)&r.Mask == 0 && r.same.prev == nil }

// Seq returns the number of a receive that is in a table. Receives are numbered from 1 in the order in which they
// were posted.
func (r *Recv[R]) Seq() uint64 { return r.order.key }

// receives is the side of the posted receives.
type receives[R any] struct {
	order   queue[Recv[R]]
	seq     uint64 // of the last receive that was posted
	indexed uint64 // number up to which receives are in an index, or in unindexed

	indexes   [ReceiveMasks]index[Recv[R]]
	used      int            // number of indexes that ever had entries: the first ones
	unindexed queue[Recv[R]] // receives for whose mask there was no index
	steps     uint64         // receives compared in unindexed, and receives added to an index
}

func (s *receives[R]) init() {
	for i := range s.indexes {
		s.indexes[i].init()
	}
}

// add appends a receive.
func (s *receives[R]) add(r *Recv[R]) {
	if invariants.Enabled && r.order.prev != nil {
		invariants.Assert(false, "receive %#x/%#x is posted twice", r.Tag, r.Mask)
	}
	s.seq++
	r.order.key = s.seq
	if r.order.entry == nil { // a store each time would need a write barrier
		r.order.entry = r
	}
	s.order.push(&r.order)
}

// remove removes a receive, which must be posted.
func (s *receives[R]) remove(r *Recv[R]) {
	s.order.remove(&r.order)
	if r.same.prev != nil {
		s.removeFromIndex(r)
	}
}

// take removes and returns the earliest receive that a message with that tag matches; nil: none. There
// must be receives. Nearly always it is the first one, not indexed: that case takes a few instructions.
func (s *receives[R]) take(tag uint64) *Recv[R] {
	if r := s.order.head.entry; r.Ready(tag) {
		s.order.shift(&r.order)
		return r
	}
	return s.takeAny(tag)
}

// takeAny implements take for all other cases.
func (s *receives[R]) takeAny(tag uint64) *Recv[R] {
	r := s.find(tag)
	if r != nil {
		s.remove(r)
	}
	return r
}

// find returns the earliest receive that a message with that tag matches; nil: none.
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

// search implements find with the indexes.
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

// indexNew adds the receives that were posted since the last call to an index.
func (s *receives[R]) indexNew() {
	for l := s.order.after(s.indexed); l != nil; l = l.next {
		s.steps++
		s.addToIndex(l.entry)
	}
	s.indexed = s.seq
}

// addToIndex adds a receive to the index of its mask.
func (s *receives[R]) addToIndex(r *Recv[R]) {
	if r.index = s.indexOf(r.Mask); r.index != nil {
		r.index.add(&r.same, r, r.Tag)
		return
	}
	r.same.entry = r
	s.unindexed.push(&r.same)
}

// removeFromIndex undoes addToIndex.
func (s *receives[R]) removeFromIndex(r *Recv[R]) {
	if r.index != nil {
		r.index.remove(&r.same)
		r.index = nil
		return
	}
	s.unindexed.remove(&r.same)
	r.same.entry = nil
}

// indexOf returns the index of a mask, or an empty index that it can have; nil if there is none.
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
