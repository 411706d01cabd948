package match

import "github.com/gucx/gucx/internal/invariants"

// MessageMasks is the maximum number of masks for which messages have an index at the same
// time. Each index takes 40 bytes in every message, and peers decide how many messages there are. Each is also one
// more queue to remove a message from. A message-passing library uses four masks (exact, any source, any
// tag, both). A search with a fifth mask reuses the least recently used index if that is
// idle (see idleSearches). Otherwise it compares the messages one by one, in order.
const MessageMasks = 4

// idleSearches is the number of searches after which an index that none of them used is idle. Indexing
// all messages again costs several times as much as comparing them one by one. Without this limit, a rotation of
// one mask more than there are indexes would do so at every search.
const idleSearches = 64

// Msg is an unexpected message, a part of the caller's record. It must not
// be copied or reused while it is in a table.
type Msg[M any] struct {
	Owner M // the caller's
	// Tag must not change while the message is in a table.
	Tag uint64

	order   link[Msg[M]] // among all messages
	indexed uint64       // a bit for each index that has it
	same    [MessageMasks]link[Msg[M]]
}

// messageIndex is the index of a mask that receives search messages with.
type messageIndex[M any] struct {
	index[Msg[M]]
	lastUse uint64 // number of the last search that used it; 0: none
	indexed uint64 // sequence number up to which messages are indexed
}

// messages is the side of the unexpected messages.
type messages[M any] struct {
	order queue[Msg[M]]
	count int
	seq   uint64 // of the last message that was added

	indexes  [MessageMasks]messageIndex[M]
	searches uint64 // searches beyond the first messages
	steps    uint64 // messages compared one by one, and messages added to an index
}

func (s *messages[M]) init() {
	for i := range s.indexes {
		s.indexes[i].init()
	}
}

// add appends a message.
func (s *messages[M]) add(m *Msg[M]) {
	if invariants.Enabled && m.order.prev != nil {
		invariants.Assert(false, "message %#x is kept twice", m.Tag)
	}
	s.seq++
	s.count++
	m.order.key, m.order.entry = s.seq, m
	s.order.push(&m.order)
}

// remove removes a message, which must be in the table.
func (s *messages[M]) remove(m *Msg[M]) {
	s.count--
	s.order.remove(&m.order)
	if m.indexed != 0 {
		s.removeFromIndex(m)
	}
}

// take removes and returns the earliest message that matches a receive; nil: none matches. There must be messages.
// Nearly always it is the first one, not indexed: that case takes a few instructions.
func (s *messages[M]) take(tag, mask uint64) *Msg[M] {
	l := s.order.head
	if m := l.entry; (m.Tag^tag)&mask == 0 && m.indexed == 0 {
		s.count--
		s.order.shift(l)
		return m
	}
	return s.takeAny(tag, mask)
}

// takeAny implements take for all other cases.
func (s *messages[M]) takeAny(tag, mask uint64) *Msg[M] {
	m := s.find(tag, mask)
	if m != nil {
		s.remove(m)
	}
	return m
}

// find returns the earliest message that matches a receive; nil: none.
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

// search implements find with an index, or one by one from the given message on.
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

// scan implements find one by one.
func (s *messages[M]) scan(l *link[Msg[M]], tag, mask uint64) *Msg[M] {
	for ; l != nil; l = l.next {
		s.steps++
		if (l.entry.Tag^tag)&mask == 0 {
			return l.entry
		}
	}
	return nil
}

// indexOf returns the number of the mask's index, which may reuse that of another mask;
// -1 if there is none.
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

// takeOver reuses an index for another mask. The caller must call indexNew next, which adds all messages
// to it: their bits of the index remain set.
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

// indexNew adds the messages that arrived since the last call to an index.
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

// removeFromIndex removes a message from all indexes.
func (s *messages[M]) removeFromIndex(m *Msg[M]) {
	for i := range s.indexes {
		if m.indexed&(1<<i) != 0 {
			s.indexes[i].remove(&m.same[i])
		}
	}
	m.indexed = 0
}
