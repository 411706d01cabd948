package sm

import "sync/atomic"

// segments tracks the segments of a link, on the sending side. Free segments are used first in,
// first out, so that the next one is known in advance. A segment uses memory only after the first write, so only
// firstSegments are used at first: another one is added when all are in flight.
type segments struct {
	returned *[maxSegs]atomic.Uint32 // number of times that the consumer has returned each segment with a reply
	taken    [maxSegs]uint32         // number of times that each segment was sent for a reply
	free     [maxSegs]uint8          // ring of free segments
	first    uint8                   // index of the first element of free
	count    int                     // length of free
	sent     [maxSegs]uint8          // ring of segments in flight that are free when the consumer has returned their slots
	slots    [maxSegs]uint32         // lower half of the number of the slot of each segment in sent
	oldest   uint8                   // index of the first element of sent
	inFlight int                     // length of sent
	used     int                     // number of segments in use so far
	most     int                     // total number of segments
}

// firstSegments is the number of segments that are used at first. Latency and rate are the
// same with 8 to 64 of them (experiment 0130 in docs/perf); each one that was written to uses memory.
const firstSegments = 16

func newSegments(returned *[maxSegs]atomic.Uint32, segs int) *segments {
	l := &segments{returned: returned, most: segs}
	for l.used < min(segs, firstSegments) {
		l.addUnused()
	}
	return l
}

// addUnused adds a segment that was not used before to the free ones, if there is one.
func (l *segments) addUnused() {
	if l.used < l.most {
		l.used++
		l.put(uint8(l.used - 1))
	}
}

// isReturned reports whether the consumer has returned segment i with a reply.
func (l *segments) isReturned(i uint8) bool { return l.returned[i].Load() == l.taken[i] }

// next returns the next free segment. There must be one.
func (l *segments) next() uint8 { return l.free[l.first] }

// collect frees the segments whose slots the consumer has returned: those before slot head.
// If none is free then, it adds another one.
func (l *segments) collect(head uint64) {
	for ; l.inFlight > 0 && int32(l.slots[l.sent[l.oldest]]-uint32(head)) < 0; l.inFlight-- {
		l.put(l.sent[l.oldest])
		l.oldest++
	}
	if l.count == 0 {
		l.addUnused()
	}
}

// takeForReply removes the next free segment, for a reply.
func (l *segments) takeForReply() {
	l.taken[l.next()]++
	l.first++
	l.count--
}

// send removes the next free segment, for the message in a slot.
func (l *segments) send(slot uint64) {
	i := l.next()
	l.first++
	l.count--
	l.abandon(i, slot)
}

// abandon frees a segment when the consumer has returned its slot.
func (l *segments) abandon(i uint8, slot uint64) {
	l.slots[i] = uint32(slot)
	l.sent[l.oldest+uint8(l.inFlight)] = i
	l.inFlight++
}

// put adds a segment to the free ones.
func (l *segments) put(i uint8) {
	l.free[l.first+uint8(l.count)] = i
	l.count++
}
