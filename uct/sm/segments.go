package sm

import "sync/atomic"

// segments keeps account of the segments of a link, on the sending side. Those that are here go out
// again first in, first out, so that it is known ahead which is next. They are few, as memory that was
// never written to takes none: another one joins them when they are all on their way.
type segments struct {
	returned *[maxSegs]atomic.Uint32 // by the consumer: how often each came back with an answer
	taken    [maxSegs]uint32         // how often each went out for one
	free     [maxSegs]uint8          // ring of those that are here
	first    uint8                   // of free
	count    int                     // of free
	sent     [maxSegs]uint8          // ring of segments in flight; their slots say when the consumer has returned them
	slots    [maxSegs]uint32         // of each of these, the low half of the number of its slot
	oldest   uint8                   // of sent
	away     int                     // length of sent
	used     int                     // segments that were ever taken, or are here
	most     int                     // segments that there are
}

// firstSegments is how many segments take turns at first. With 8 to 64 of them latency and rate are the
// same (experiment 0130 in docs/perf); each of them that is written to takes memory.
const firstSegments = 16

func newSegments(returned *[maxSegs]atomic.Uint32, segs int) *segments {
	l := &segments{returned: returned, most: segs}
	for l.used < min(segs, firstSegments) {
		l.join()
	}
	return l
}

// join has a segment take turns that was not used before, if there is one.
func (l *segments) join() {
	if l.used < l.most {
		l.used++
		l.put(uint8(l.used - 1))
	}
}

// isBack reports whether the answer in segment i is there.
func (l *segments) isBack(i uint8) bool { return l.returned[i].Load() == l.taken[i] }

// next is the segment that is taken next, of those that are here: there is one.
func (l *segments) next() uint8 { return l.free[l.first] }

// collect takes those back whose slots the consumer has taken, which are all before slot head.
// If then none is here another one joins.
func (l *segments) collect(head uint64) {
	for ; l.away > 0 && int32(l.slots[l.sent[l.oldest]]-uint32(head)) < 0; l.away-- {
		l.put(l.sent[l.oldest])
		l.oldest++
	}
	if l.count == 0 {
		l.join()
	}
}

// takeForAnswer takes the next segment, for an answer.
func (l *segments) takeForAnswer() {
	l.taken[l.next()]++
	l.first++
	l.count--
}

// send takes the next segment, for the message in a slot.
func (l *segments) send(slot uint64) {
	i := l.next()
	l.first++
	l.count--
	l.abandon(i, slot)
}

// abandon has a segment be here again when the consumer has taken its slot, and those before.
func (l *segments) abandon(i uint8, slot uint64) {
	l.slots[i] = uint32(slot)
	l.sent[l.oldest+uint8(l.away)] = i
	l.away++
}

// put makes a segment that is back one that is here.
func (l *segments) put(i uint8) {
	l.free[l.first+uint8(l.count)] = i
	l.count++
}
