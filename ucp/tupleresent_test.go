package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/conn"
	"github.com/gucx/gucx/ucp/internal/window"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/wrap"
)

// narrow is a configuration whose windows do not grow, so that messages soon wait for credit.
var narrow = ucp.Config{TagProto: "tupleq", EagerWindow: ucp.FirstWindow}

// sendMany starts count messages of a tag.
func sendMany(p *ucppair.Pair, tag uint64, count int) (reqs []*ucp.Request) {
	p.T.Helper()
	for k := range count {
		s, err := p.A.EP.TagSend(tag, testenv.Pattern(8, k), nil)
		require.NoError(p.T, err)
		if s != nil {
			reqs = append(reqs, s)
		}
	}
	return reqs
}

// receiveUnexpected receives the unexpected messages of a tag.
func receiveUnexpected(p *ucppair.Pair, tag uint64, count int) {
	p.T.Helper()
	for range count {
		r, err := p.B.W.TagRecv(make([]byte, 8), tag, exact, nil, nil)
		require.NoError(p.T, p.Finish(r, err))
	}
}

// receiveTags receives messages of any tag, and returns their tags.
func receiveTags(p *ucppair.Pair, count int) (tags []uint64) {
	p.T.Helper()
	for range count {
		info := &ucp.TagInfo{}
		r, err := p.B.W.TagRecv(make([]byte, 8), 0, 0, info, nil)
		require.NoError(p.T, p.Finish(r, err))
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
	p := ucppair.New(t, queues(), cfg).Connect()
	openTuple(p, 7)
	sent := sendMany(p, 7, count)
	require.Len(t, sent, count)
	p.B.W.TagProbe(7, exact, false)
	settleQueues(p)
	require.NoError(t, p.A.EP.Err())
	for k := range count {
		got := make([]byte, 8)
		r, err := p.B.W.TagRecv(got, 7, 0xff, nil, nil)
		require.NoError(t, p.Finish(r, err))
		testenv.RequireBytes(t, testenv.Pattern(8, k), got)
	}
	for _, s := range sent {
		require.NoError(t, p.Finish(s, nil))
	}
	assert.Positive(t, tupleStat(p.A.W, "resent"))
}

// TestTuple_ResentIsCanceled: a message that is canceled before it is sent again does not free its place for another
// one.
func TestTuple_ResentIsCanceled(t *testing.T) {
	p := ucppair.New(t, queues(), narrow).Connect()
	openTuple(p, 7)
	const count = 200 // more than the credit permits
	sent := sendMany(p, 7, count)
	first := append(sendMany(p, 9, 1), sendMany(p, 10, 1)...)
	p.B.W.TagProbe(7, exact, false)
	settleQueues(p)
	canceled := 0
	for _, s := range sent {
		if !s.WaitsForReceive() && s.Cancel() {
			canceled++
		}
	}
	require.Positive(t, canceled)
	settleQueues(p)
	receiveUnexpected(p, 7, count-canceled)
	last := sendMany(p, 11, 1)
	settleQueues(p)
	assert.Equal(t, []uint64{9, 10, 11}, receiveTags(p, 3))
	for _, s := range append(append(sent, first...), last...) {
		s.Release()
	}
}

// refusing is a layer that refuses all active messages while refuse returns true.
type refusing struct{ refuse func() bool }

func (l *refusing) layer() wrap.Hooks { return wrap.Hooks{EP: func(e *wrap.EP) { e.Intercept(l) }} }

// Before implements wrap.Interceptor.
func (l *refusing) Before(v uct.Variant) error {
	if v == uct.AMBcopy && l.refuse() {
		return uct.ErrNoResource
	}
	return nil
}

// After implements wrap.Interceptor.
func (l *refusing) After(uct.Variant, int, error) {}

// TestTuple_ResentIsCanceledBesideStream: the credit of messages that are canceled while they wait for the full lane to be sent
// again resumes a stream that lacks credit.
func TestTuple_ResentIsCanceledBesideStream(t *testing.T) {
	const count = 30 // 12,000 of 16,384 bytes of credit
	over := &refusing{refuse: func() bool { return false }}
	p := ucppair.New(t, queues(over.layer()), narrow).Both()
	openTuple(p, 7)
	sent := sendMany(p, 7, count)
	stream, err := p.A.EP.StreamSend(make([]byte, 8000), nil)
	require.NoError(t, err)
	require.NotNil(t, stream)
	over.refuse = func() bool { return tupleStat(p.A.W, "resent") > 0 }
	p.B.W.TagProbe(7, exact, false)
	settleQueues(p)
	canceled := 0
	for _, s := range sent[1:] {
		require.True(t, s.Queued())
		require.True(t, s.Cancel())
		canceled++
	}
	require.False(t, stream.Done())
	over.refuse = func() bool { return false }
	settleQueues(p)
	require.True(t, stream.Done())
	receiveUnexpected(p, 7, count-canceled)
	for _, s := range append(sent, stream) {
		s.Release()
	}
}

// TestTuple_CanceledBeforeResent: a canceled message has no place, also for later messages that are sent again.
func TestTuple_CanceledBeforeResent(t *testing.T) {
	p := ucppair.New(t, queues(), narrow).Connect()
	openTuple(p, 7)
	early := sendMany(p, 7, 1)
	p.B.W.TagProbe(7, exact, false)
	m := p.A.EP.Messages()
	before := tupleStat(p.A.W, "messages")
	p.Until(func() bool { return tupleStat(p.A.W, "messages") > before }) // STOPPED
	waiting, steady := m.TupleSender().Waiting()
	require.Equal(t, 1, waiting)
	require.False(t, steady)
	credit := m.Credit
	m.Credit = -window.Reserve(m.Most)
	waits := sendMany(p, 9, 1)
	require.Len(t, waits, 1)
	again := sendMany(p, 7, 1)
	settleQueues(p)
	require.True(t, m.TupleSender().Find(7).Usual())
	m.Credit = credit
	require.True(t, waits[0].Cancel())
	last := sendMany(p, 11, 1)
	receiveUnexpected(p, 7, 1)
	settleQueues(p)
	require.Equal(t, 2, p.B.W.Tags().Unexpected())
	assert.Equal(t, []uint64{7, 11}, receiveTags(p, 2))
	for _, s := range append(append(early, again...), append(last, waits...)...) {
		s.Release()
	}
}

// TestTuple_ResentBeyondCredit: messages without credit are sent again while receives match the earlier ones.
func TestTuple_ResentBeyondCredit(t *testing.T) {
	const count = 1000
	p := ucppair.New(t, queues(), tupleq).Connect()
	openTuple(p, 7)
	sent := sendMany(p, 7, count)
	p.B.W.TagProbe(7, exact, false)
	settleQueues(p)
	require.Less(t, p.B.W.Tags().Unexpected(), count, "no credit for more")
	for k := range count {
		got := make([]byte, 8)
		r, err := p.B.W.TagRecv(got, 7, exact, nil, nil)
		require.NoError(t, p.Finish(r, err))
		testenv.RequireBytes(t, testenv.Pattern(8, k), got)
	}
	for _, s := range sent {
		require.NoError(t, p.Finish(s, nil))
	}
	settleQueues(p)
	assert.False(t, p.B.W.TupleQueues().Paused())
}

// TestTuple_StoppedBeyondCredit: a queue closes although messages of another tag wait for credit.
func TestTuple_StoppedBeyondCredit(t *testing.T) {
	const count, length = 120, 4000
	p := ucppair.New(t, queues(), tupleq).Connect()
	openTuple(p, 7)
	var sent []*ucp.Request
	for range count {
		s, err := p.A.EP.TagSend(100, testenv.Pattern(length, 1), nil)
		require.NoError(t, err)
		if s != nil {
			sent = append(sent, s)
		}
	}
	settleQueues(p)
	masked, err := p.B.W.TagRecv(make([]byte, 8), 7, 0xff7, nil, nil)
	require.NoError(t, err)
	settleQueues(p)
	require.False(t, p.B.W.TupleQueues().Paused())
	for range count {
		got := make([]byte, length)
		r, err := p.B.W.TagRecv(got, 100, exact, nil, nil)
		require.NoError(t, p.Finish(r, err))
		testenv.RequireBytes(t, testenv.Pattern(length, 1), got)
	}
	for _, s := range sent {
		require.NoError(t, p.Finish(s, nil))
	}
	settleQueues(p)
	assert.False(t, p.B.W.TupleQueues().Paused())
	require.True(t, masked.Cancel())
	masked.Release()
}
