package tuple

import "slices"

// skipped contains the numbers of messages of the usual way that the receiver does not count. The zero value is empty.
type skipped struct {
	before uint64   // how many numbers were forgotten
	list   []uint64 // the others, in order
	room   int      // length of list at which full returns true
}

// minSkipped is the minimum of skipped.room.
const minSkipped = 64

// full reports whether the caller should call forget before the next add.
func (s *skipped) full() bool { return len(s.list) >= max(s.room, minSkipped) }

// forget removes the numbers up to first. upTo must not be called for a smaller number later.
func (s *skipped) forget(first uint64) {
	n := s.search(first)
	s.before += uint64(n)
	s.list = slices.Delete(s.list, 0, n)
	s.room = 2 * len(s.list)
}

// add adds a number.
func (s *skipped) add(number uint64) { s.list = slices.Insert(s.list, s.search(number), number) }

// upTo returns how many numbers up to the given one were added.
func (s *skipped) upTo(number uint64) uint64 { return s.before + uint64(s.search(number)) }

// search returns the index of the first number in the list above the given one.
func (s *skipped) search(number uint64) int {
	i, _ := slices.BinarySearch(s.list, number+1)
	return i
}
