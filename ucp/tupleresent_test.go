package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucp/internal/conn"
	"github.com/gucx/gucx/ucp/internal/window"
)

// narrow is a configuration whose windows do not grow, so that messages soon wait for credit.
var narrow = Config{TagProto: "tupleq", EagerWindow: firstWindow}

// sends starts count messages of a tag.
func (p *pair) sends(tag uint64, count int) (reqs []*Request) {
	p.t.Helper()
	for k := range count {
		s, err := p.a.ep.TagSend(tag, pattern(8, k), nil)
		require.NoError(p.t, err)
		if s != nil {
			reqs = append(reqs, s)
		}
	}
	return reqs
}

// kept receives the unexpected messages of a tag.
func (p *pair) kept(tag uint64, count int) {
	p.t.Helper()
	for range count {
		r, err := p.b.w.TagRecv(make([]byte, 8), tag, exact, nil, nil)
		require.NoError(p.t, p.finish(r, err))
	}
}

// tags receives messages of any tag, and returns their tags.
func (p *pair) tags(count int) (tags []uint64) {
	p.t.Helper()
	for range count {
		info := &TagInfo{}
		r, err := p.b.w.TagRecv(make([]byte, 8), 0, 0, info, nil)
		require.NoError(p.t, p.finish(r, err))
		tags = append(tags, info.Tag)
	}
	return tags
}

// TestTuple_ManyResent: a queue with any number of waiting messages can be closed.
func TestTuple_ManyResent(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	const count = conn.MaxReplies + 100
	cfg := tupleq
	cfg.EagerWindow = 16 << 20 // credit for all of them
	p := newPair(t, queues(), cfg).connect()
	p.openTuple(7)
	sent := p.sends(7, count)
	require.Len(t, sent, count)
	p.b.w.TagProbe(7, exact, false)
	p.settle()
	require.NoError(t, p.a.ep.Err())
	for k := range count {
		got := make([]byte, 8)
		r, err := p.b.w.TagRecv(got, 7, 0xff, nil, nil)
		require.NoError(t, p.finish(r, err))
		requireBytes(t, pattern(8, k), got)
	}
	for _, s := range sent {
		require.NoError(t, p.finish(s, nil))
	}
	assert.Positive(t, p.a.stat("resent"))
}

// TestTuple_ResentIsCanceled: a message that is canceled before it is sent again does not free its place for another
// one.
func TestTuple_ResentIsCanceled(t *testing.T) {
	p := newPair(t, queues(), narrow).connect()
	p.openTuple(7)
	const count = 200 // more than the credit permits
	sent := p.sends(7, count)
	first := append(p.sends(9, 1), p.sends(10, 1)...)
	p.b.w.TagProbe(7, exact, false)
	p.settle()
	canceled := 0
	for _, s := range sent {
		if !s.waitsForReceive() && s.Cancel() {
			canceled++
		}
	}
	require.Positive(t, canceled)
	p.settle()
	p.kept(7, count-canceled)
	last := p.sends(11, 1)
	p.settle()
	assert.Equal(t, []uint64{9, 10, 11}, p.tags(3))
	for _, s := range append(append(sent, first...), last...) {
		s.Release()
	}
}

// TestTuple_CanceledBeforeResent: a canceled message has no place, also for later messages that are sent again.
func TestTuple_CanceledBeforeResent(t *testing.T) {
	p := newPair(t, queues(), narrow).connect()
	p.openTuple(7)
	early := p.sends(7, 1)
	p.b.w.TagProbe(7, exact, false)
	m := p.a.ep.msgs
	told := p.a.stat("messages")
	p.until(func() bool { return p.a.stat("messages") > told }) // STOPPED
	waiting, steady := m.tuple.out.Waiting()
	require.Equal(t, 1, waiting)
	require.False(t, steady)
	credit := m.Credit
	m.Credit = -window.Reserve(m.Most)
	waits := p.sends(9, 1)
	require.Len(t, waits, 1)
	again := p.sends(7, 1)
	p.settle()
	require.True(t, m.tuple.out.Find(7).Usual())
	m.Credit = credit
	require.True(t, waits[0].Cancel())
	last := p.sends(11, 1)
	p.kept(7, 1)
	p.settle()
	require.Equal(t, 2, p.b.w.tag.table.Unexpected())
	assert.Equal(t, []uint64{7, 11}, p.tags(2))
	for _, s := range append(append(early, again...), append(last, waits...)...) {
		s.Release()
	}
}

// TestTuple_ResentBeyondCredit: messages without credit are sent again while receives match the earlier ones.
func TestTuple_ResentBeyondCredit(t *testing.T) {
	const count = 1000
	p := newPair(t, queues(), tupleq).connect()
	p.openTuple(7)
	sent := p.sends(7, count)
	p.b.w.TagProbe(7, exact, false)
	p.settle()
	require.Less(t, p.b.w.tag.table.Unexpected(), count, "no credit for more")
	for k := range count {
		got := make([]byte, 8)
		r, err := p.b.w.TagRecv(got, 7, exact, nil, nil)
		require.NoError(t, p.finish(r, err))
		requireBytes(t, pattern(8, k), got)
	}
	for _, s := range sent {
		require.NoError(t, p.finish(s, nil))
	}
	p.settle()
	assert.False(t, p.b.w.tuples.in.Paused())
}

// TestTuple_StoppedBeyondCredit: a queue closes although messages of another tag wait for credit, as soon as those are
// received.
func TestTuple_StoppedBeyondCredit(t *testing.T) {
	const count, length = 120, 4000
	p := newPair(t, queues(), tupleq).connect()
	p.openTuple(7)
	var sent []*Request
	for range count {
		s, err := p.a.ep.TagSend(100, pattern(length, 1), nil)
		require.NoError(t, err)
		if s != nil {
			sent = append(sent, s)
		}
	}
	p.settle()
	masked, err := p.b.w.TagRecv(make([]byte, 8), 7, 0xff7, nil, nil)
	require.NoError(t, err)
	p.settle()
	require.True(t, p.b.w.tuples.in.Paused(), "STOPPED waits behind the others")
	for range count {
		got := make([]byte, length)
		r, err := p.b.w.TagRecv(got, 100, exact, nil, nil)
		require.NoError(t, p.finish(r, err))
		requireBytes(t, pattern(length, 1), got)
	}
	for _, s := range sent {
		require.NoError(t, p.finish(s, nil))
	}
	p.settle()
	assert.False(t, p.b.w.tuples.in.Paused())
	require.True(t, masked.Cancel())
	masked.Release()
}
