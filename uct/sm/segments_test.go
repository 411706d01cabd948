package sm

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSegments_Model takes at random, as messages and for answers, and gives back: no segment is out
// twice, all come back, and none is missing only while all are out.
func TestSegments_Model(t *testing.T) {
	for _, segs := range []int{1, 2, 3, 64, maxSegs} {
		newSegmentsModel(t, segs, uint64(1<<32-5000)).run(20000)
	}
}

// segmentsModel is segments and what is known to be out.
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
	assert.Equal(m.t, m.most, m.count+m.away+len(m.answers)+m.most-m.used, "all are somewhere")
}

// consumeTo has the consumer take the slots before head: a segment is back when its slot is, and those
// of the segments before it are.
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
		m.takeForAnswer()
		m.answers = append(m.answers, sentSegment{i, m.tail})
	} else {
		m.send(m.tail)
		m.messages = append(m.messages, sentSegment{i, m.tail})
	}
	m.tail += 1 + uint64(m.rng.IntN(3)) // short messages take slots in between
}

// answerOne has the answer in the oldest segment that was asked for come back, or leaves it to its slot.
func (m *segmentsModel) answerOne() {
	a := m.answers[0]
	m.answers = m.answers[1:]
	require.False(m.t, m.isBack(a.seg))
	m.returned[a.seg].Add(1)
	require.True(m.t, m.isBack(a.seg))
	if m.rng.IntN(2) == 0 {
		m.put(a.seg)
		delete(m.out, a.seg)
		return
	}
	m.abandon(a.seg, a.slot)
	m.messages = append(m.messages, a)
	m.consumeTo(m.head) // its slot may have been taken
}

// TestSegments_FewInUse: as long as they come back in time, no others join those of the beginning.
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

// TestSegments_TakeTurns: the one that is used next came back before all others.
func TestSegments_TakeTurns(t *testing.T) {
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
