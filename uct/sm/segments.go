package sm

import "sync/atomic"

// segments keeps account of the segments of a link, on the sending side. Those that
// are here go out again last in, first out: the lines of the one that came back last
// are still in this core's cache.
type segments struct {
	returned *[maxSegs]atomic.Uint32 // by the consumer: how often each came back
	taken    [maxSegs]uint32         // how often each went out
	free     [maxSegs]uint8          // stack
	flight   [maxSegs]uint8          // ring of those taken for messages, which come back in order
	count    int                     // of free
	first    uint8                   // of flight
	away     int                     // length of flight
}

func newSegments(returned *[maxSegs]atomic.Uint32, segs int) *segments {
	l := &segments{returned: returned, count: segs}
	for i := range segs {
		l.free[i] = uint8(segs - 1 - i)
	}
	return l
}

// isBack reports whether the consumer has done with segment i.
func (l *segments) isBack(i uint8) bool { return l.returned[i].Load() == l.taken[i] }

// collectEvery is after how many more messages on their way next looks at the
// consumer's words, whose line the consumer is writing to. A power of two.
const collectEvery = 4

// next is the segment that is taken next, if one is here.
func (l *segments) next() (i uint8, ok bool) {
	if l.count == 0 || l.away&(collectEvery-1) == 0 {
		l.collect()
	}
	if l.count == 0 {
		return 0, false
	}
	return l.free[uint8(l.count-1)], true
}

// collect takes all that came back.
func (l *segments) collect() {
	for l.away > 0 && l.isBack(l.flight[l.first]) {
		l.put(l.flight[l.first])
		l.first++
		l.away--
	}
}

// take takes the segment that next returned, for an answer.
func (l *segments) take(i uint8) {
	l.count--
	l.taken[i]++
}

// send is take for a message: the segment is here again when it is back.
func (l *segments) send(i uint8) {
	l.take(i)
	l.abandon(i)
}

// abandon has a segment that was taken be here again when it is back, and those that were
// sent before.
func (l *segments) abandon(i uint8) {
	l.flight[l.first+uint8(l.away)] = i
	l.away++
}

// put makes a segment that is back one that is here.
func (l *segments) put(i uint8) {
	l.free[uint8(l.count)] = i
	l.count++
}
