package tuple

import "slices"

// turns converts the number of a message of the usual way to the number of messages that the receiver has counted up to it.
// The receiver does not count messages that were canceled or sent out of turn. It counts messages of closed queues that have
// waited and are sent in their turn. The zero value is ready to use.
type turns struct {
	before   uint64      // difference by the entries that were forgotten, modulo 2^64
	skipped  []uint64    // numbers that the receiver does not count, in order
	inserted []SendPlace // messages of queues that it counts, in order
	room     int         // number of entries at which full returns true
}

// minTurns is the minimum of turns.room.
const minTurns = 64

// full reports whether the caller should call forget before it adds an entry.
func (t *turns) full() bool { return len(t.skipped)+len(t.inserted) >= max(t.room, minTurns) }

// makeRoom calls forget if that is due.
func (t *turns) makeRoom(s *Sender) {
	if t.full() {
		t.forget(s.firstPlace())
	}
}

// forget removes the entries before the first place. count must not be called for an earlier place later.
func (t *turns) forget(first uint64) {
	n, k := t.skippedUpTo(first), t.search(SendPlace{usual: first})
	t.before += uint64(k) - uint64(n)
	t.skipped, t.inserted = slices.Delete(t.skipped, 0, n), slices.Delete(t.inserted, 0, k)
	t.room = 2 * (len(t.skipped) + len(t.inserted))
}

// skip adds the number of a message that the receiver does not count.
func (t *turns) skip(number uint64) {
	t.skipped = slices.Insert(t.skipped, t.skippedUpTo(number), number)
}

// insert adds a message of a queue that the receiver will count. remove removes it.
func (t *turns) insert(at SendPlace) { t.inserted = slices.Insert(t.inserted, t.search(at), at) }

func (t *turns) remove(at SendPlace) {
	if i := t.search(at); i < len(t.inserted) && t.inserted[i] == at {
		t.inserted = slices.Delete(t.inserted, i, i+1)
		return
	}
	t.before-- // it was forgotten
}

// count returns how many messages the receiver counts up to a place.
func (t *turns) count(at SendPlace) uint64 {
	return at.usual + t.before + uint64(t.search(at)) - uint64(t.skippedUpTo(at.usual))
}

// skippedUpTo returns the index of the first skipped number above the given one.
func (t *turns) skippedUpTo(number uint64) int {
	i, _ := slices.BinarySearch(t.skipped, number+1)
	return i
}

// search returns the index of the first inserted message that is not before a place.
func (t *turns) search(at SendPlace) int {
	i, _ := slices.BinarySearchFunc(t.inserted, at, SendPlace.compare)
	return i
}
