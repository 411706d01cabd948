package sm

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSegments_Model sends and returns segments at random, for messages and replies: no segment is in flight
// twice, all are freed, and none is free only while all are in flight.
func TestSegments_Model(t *testing.T) {
	for _, segs := range []int{1, 2, 3, 64, maxSegs} {
		newSegmentsModel(t, segs, uint64(1<<32-5000)).run(20000)
	}
}

// segmentsModel has segments and a model of those in flight.
type segmentsModel struct {
	*segments
	t        *testing.T
	rng      *rand.Rand
	returned [maxSegs]atomic.Uint32
	out      map[uint8]bool
	messages []sentSegment // in the order of their slots
	answers  []sentSegment
	tail     uint64 // number of the next slot
	head     uint64 // of the first slot that the consumer has not taken
}

type sentSegment struct {
	seg  uint8
	slot uint64
}

func newSegmentsModel(t *testing.T, segs int, slot uint64) *segmentsModel {
	m := &segmentsModel{t: t, rng: rand.New(rand.NewPCG(7, uint64(segs))), out: map[uint8]bool{}, tail: slot, head: slot}
	m.segments = newSegments(&m.returned, segs)
	return m
}

func (m *segmentsModel) run(steps int) {
	for range steps {
		m.collectIfNone()
		if m.count > 0 && m.rng.IntN(2) == 0 {
			m.takeOne()
		}
		for len(m.messages) > 0 && m.rng.IntN(2) == 0 {
			m.consumeTo(m.messages[0].slot + 1)
		}
		if len(m.answers) > 0 && m.rng.IntN(3) == 0 {
			m.answerOne()
		}
	}
	assert.Equal(m.t, m.most, m.count+m.inFlight+len(m.answers)+m.most-m.used, "all are somewhere")
}

// consumeTo makes the consumer return the slots before head: a segment is free when its slot and those
// of earlier segments were returned.
func (m *segmentsModel) consumeTo(head uint64) {
	m.head = max(m.head, head)
	for len(m.messages) > 0 && m.messages[0].slot < m.head {
		delete(m.out, m.messages[0].seg)
		m.messages = m.messages[1:]
	}
}

func (m *segmentsModel) collectIfNone() {
	if m.count > 0 {
		return
	}
	m.collect(m.head)
	if m.count == 0 {
		require.Len(m.t, m.out, m.most, "none is here only if all are out")
	}
}

func (m *segmentsModel) takeOne() {
	i := m.next()
	require.False(m.t, m.out[i], "taken twice")
	m.out[i] = true
	if m.rng.IntN(4) == 0 {
		m.takeForReply()
		m.answers = append(m.answers, sentSegment{i, m.tail})
	} else {
		m.send(m.tail)
		m.messages = append(m.messages, sentSegment{i, m.tail})
	}
	m.tail += 1 + uint64(m.rng.IntN(3)) // small messages use slots in between
}

// answerOne returns the oldest segment with a reply, or abandons it.
func (m *segmentsModel) answerOne() {
	a := m.answers[0]
	m.answers = m.answers[1:]
	require.False(m.t, m.isReturned(a.seg))
	m.returned[a.seg].Add(1)
	require.True(m.t, m.isReturned(a.seg))
	if m.rng.IntN(2) == 0 {
		m.put(a.seg)
		delete(m.out, a.seg)
		return
	}
	m.abandon(a.seg, a.slot)
	m.messages = append(m.messages, a)
	m.consumeTo(m.head) // its slot may have been taken
}

// TestSegments_FewInUse: if segments are returned in time, only firstSegments are used.
func TestSegments_FewInUse(t *testing.T) {
	var returned [maxSegs]atomic.Uint32
	l := newSegments(&returned, 64)
	for slot := range uint64(1000) {
		if l.count == 0 {
			l.collect(slot)
		}
		require.Less(t, l.next(), uint8(firstSegments))
		l.send(slot)
	}
	assert.Equal(t, firstSegments, l.used)
}

// TestSegments_FirstInFirstOut: the next segment is the one that was freed first.
func TestSegments_FirstInFirstOut(t *testing.T) {
	var returned [maxSegs]atomic.Uint32
	l := newSegments(&returned, 64)
	for slot := range uint64(100) {
		if l.count == 0 {
			l.collect(slot)
		}
		require.EqualValues(t, slot%firstSegments, l.next())
		l.send(slot)
	}
}
