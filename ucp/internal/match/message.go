package match

import "github.com/gucx/gucx/internal/invariants"

// MessageMasks is how many masks that receives search messages with have an index at the same
// time. Each is 40 bytes in every message, of which peers decide how many there are, and one
// more queue to take a message out of. A message-passing library uses four (exact, any source, any
// tag, both). A search with a fifth mask takes over the index that was used least recently if that is
// idle (see idleSearches), and otherwise goes through the messages in order.
const MessageMasks = 4

// idleSearches is the number of searches after which an index that none of them used may
// be taken over by another mask. To index all messages anew costs some times what going through
// them does: with masks in rotation, one more than there are indexes, it would be done for every
// search.
const idleSearches = 64

// Msg is a message that no receive expected, a part of the caller's record of it. It must not
// be copied or reused while it is in a table.
type Msg[M any] struct {
	Owner M // the caller's
	// Tag must not change while the message is in a table.
	Tag uint64

	order   link[Msg[M]] // among all
	indexed uint64       // a bit for each index that it is in
	same    [MessageMasks]link[Msg[M]]
}

// messageIndex is the index of a mask that messages are searched with.
type messageIndex[M any] struct {
	index[Msg[M]]
	lastUse uint64 // the number of the last search that used it; 0: it was never used
	indexed uint64 // the sequence number up to which messages are in it
}

// messages is the side of the unexpected messages.
type messages[M any] struct {
	order queue[Msg[M]]
	count int
	seq   uint64 // of the last one that was kept

	indexes  [MessageMasks]messageIndex[M]
	searches uint64 // that went beyond the first messages
	steps    uint64 // messages looked at one by one, and put into an index
}

func (s *messages[M]) init() {
	for i := range s.indexes {
		s.indexes[i].init()
	}
}

// add keeps a message.
func (s *messages[M]) add(m *Msg[M]) {
	if invariants.Enabled && m.order.prev != nil {
		invariants.Assert(false, "message %#x is kept twice", m.Tag)
	}
	s.seq++
	s.count++
	m.order.key, m.order.entry = s.seq, m
	s.order.push(&m.order)
}

// remove takes out a message that is kept.
func (s *messages[M]) remove(m *Msg[M]) {
	s.count--
	s.order.remove(&m.order)
	if m.indexed != 0 {
		s.removeFromIndex(m)
	}
}

// take takes out the earliest message that fits a receive; nil: none fits. There are messages.
// The first one, not indexed, is nearly always it, and goes in a few instructions.
func (s *messages[M]) take(tag, mask uint64) *Msg[M] {
	l := s.order.head
	if m := l.entry; (m.Tag^tag)&mask == 0 && m.indexed == 0 {
		s.count--
		s.order.shift(l)
		return m
	}
	return s.takeAny(tag, mask)
}

// takeAny is take for wherever the message is.
func (s *messages[M]) takeAny(tag, mask uint64) *Msg[M] {
	m := s.find(tag, mask)
	if m != nil {
		s.remove(m)
	}
	return m
}

// find is the earliest message that fits a receive; nil: none.
func (s *messages[M]) find(tag, mask uint64) *Msg[M] {
	l := s.order.head
	for range scanLimit {
		if l == nil {
			return nil
		}
		if (l.entry.Tag^tag)&mask == 0 {
			return l.entry
		}
		l = l.next
	}
	if l == nil {
		return nil
	}
	return s.search(l, tag, mask)
}

// search is find by an index, or one by one from the given message on.
func (s *messages[M]) search(from *link[Msg[M]], tag, mask uint64) *Msg[M] {
	s.searches++
	slot := s.indexOf(mask)
	if slot < 0 {
		return s.scan(from, tag, mask)
	}
	s.indexes[slot].lastUse = s.searches
	s.indexNew(slot)
	return s.indexes[slot].first(tag)
}

// scan is find one by one.
func (s *messages[M]) scan(l *link[Msg[M]], tag, mask uint64) *Msg[M] {
	for ; l != nil; l = l.next {
		s.steps++
		if (l.entry.Tag^tag)&mask == 0 {
			return l.entry
		}
	}
	return nil
}

// indexOf is the number of the mask's index, which may be that of another mask before;
// -1 if it gets none.
func (s *messages[M]) indexOf(mask uint64) int {
	least := 0
	for i := range s.indexes {
		x := &s.indexes[i]
		if x.lastUse != 0 && x.mask == mask {
			return i
		}
		if x.lastUse < s.indexes[least].lastUse {
			least = i
		}
	}
	x := &s.indexes[least]
	if x.lastUse != 0 && s.searches-x.lastUse < idleSearches {
		return -1
	}
	s.takeOver(least, mask)
	return least
}

// takeOver makes an index that of another mask, without messages. indexNew follows, which puts all of
// them in: their bits of the index remain set.
func (s *messages[M]) takeOver(slot int, mask uint64) {
	x := &s.indexes[slot]
	if x.keys > 0 {
		for l := s.order.head; l != nil; l = l.next {
			s.steps++
			l.entry.same[slot] = link[Msg[M]]{}
		}
	}
	x.reset(mask)
	x.indexed = 0
}

// indexNew puts the messages that came since the last time into an index.
func (s *messages[M]) indexNew(slot int) {
	x := &s.indexes[slot]
	for l := s.order.after(x.indexed); l != nil; l = l.next {
		s.steps++
		m := l.entry
		x.add(&m.same[slot], m, m.Tag)
		m.indexed |= 1 << slot
	}
	x.indexed = s.seq
}

// removeFromIndex takes a message out of all indexes.
func (s *messages[M]) removeFromIndex(m *Msg[M]) {
	for i := range s.indexes {
		if m.indexed&(1<<i) != 0 {
			s.indexes[i].remove(&m.same[i])
		}
	}
	m.indexed = 0
}
