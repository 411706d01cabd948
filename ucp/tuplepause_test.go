package ucp_test

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/wrap"
)

// stuck is a layer whose queues do not stop while a peer is in the middle of a message.
type stuck struct {
	inside bool
	tries  int // calls to stop a queue meanwhile
}

func (s *stuck) layer() wrap.Hooks {
	return wrap.Hooks{EP: func(e *wrap.EP) { e.Has.Queues = &stuckQueues{e.Has.Queues, s} }}
}

type stuckQueues struct {
	uct.Queuer
	s *stuck
}

func (q *stuckQueues) NewQueue(depth int) (uct.Queue, error) {
	below, err := q.Queuer.NewQueue(depth)
	return &stuckQueue{below, q.s}, err
}

type stuckQueue struct {
	uct.Queue
	s *stuck
}

func (q *stuckQueue) Stop() error {
	if q.s.inside {
		q.s.tries++
		return &ucs.InUseError{PIDs: []int{os.Getpid()}}
	}
	return q.Queue.Stop()
}

// selfEP makes an EP of b to itself.
func selfEP(p *ucppair.Pair) *ucp.EP {
	p.T.Helper()
	e, err := p.B.W.NewEP(p.B.W.Address(), ucp.EPConfig{})
	require.NoError(p.T, err)
	return e
}

// finishByB returns a function that completes an operation of b while a makes no progress.
func finishByB(p *ucppair.Pair) func(*ucp.Request, error) {
	return func(r *ucp.Request, err error) {
		p.T.Helper()
		require.NoError(p.T, err)
		if r == nil {
			return
		}
		testenv.ProgressWithin(p.T, testenv.Watchdog, func() bool {
			p.B.W.Progress()
			return r.Done()
		})
		require.NoError(p.T, r.Take())
	}
}

// The retries for a queue that does not stop; package tuple.
const (
	stopLooks = 200
	stopPause = time.Millisecond
)

// TestTuple_PeerInTheMiddle: a queue does not stop because a peer was stopped in the middle of a message. The worker
// retries at intervals, uses no time meanwhile, and serves other peers.
func TestTuple_PeerInTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stuck{}
		p := ucppair.New(t, queues(s.layer()), tupleq).Both()
		self, finish := selfEP(p), finishByB(p)
		openTuple(p, 7)
		got := make([]byte, 64)
		first, err := p.B.W.TagRecv(got, 7, exact, nil, nil)
		require.NoError(t, err)
		s.inside = true
		masked, err := p.B.W.TagRecv(make([]byte, 64), 7, 0xf, nil, nil)
		require.NoError(t, err)
		for range 2 * stopLooks {
			p.Step()
		}
		tries := s.tries
		for range 2 * stopLooks {
			p.Step()
		}
		assert.Equal(t, tries, s.tries, "tried without a pause")
		out, err := self.TagSend(0x17, testenv.Pattern(64, 1), nil)
		require.NoError(t, err)
		finish(masked, nil)
		require.NoError(t, p.Finish(out, nil))
		for range 3 {
			time.Sleep(stopPause)
			synctest.Wait()
			spin(&p.B)
			tries++
			assert.Equal(t, tries, s.tries)
		}
		s.inside = false
		time.Sleep(stopPause)
		synctest.Wait()
		out, err = p.A.EP.TagSend(7, testenv.Pattern(64, 2), nil)
		require.NoError(t, err)
		require.NoError(t, p.Finish(first, nil))
		require.NoError(t, p.Finish(out, nil))
		testenv.RequireBytes(t, testenv.Pattern(64, 2), got)
		settleQueues(p)
		assert.False(t, p.B.W.TupleQueues().Paused())
	})
}

// TestTuple_SilentSender: a sender that makes no progress while its queue closes does not delay messages of others. Its
// own messages keep their order.
func TestTuple_SilentSender(t *testing.T) {
	p := ucppair.New(t, queues(), tupleq).Both()
	self, finish := selfEP(p), finishByB(p)
	openTuple(p, 7)
	finish(self.TagSend(1, nil, nil))
	finish(p.B.W.TagRecv(nil, 1, exact, nil, nil))
	waits := sendMany(p, 7, 2)
	waits = append(waits, sendMany(p, 0x17, 1)...)
	p.Until(func() bool { return p.B.W.Tags().Unexpected() == 1 })

	info, got := &ucp.TagInfo{}, make([]byte, 8)
	masked, err := p.B.W.TagRecv(got, 7, 0xf, info, nil)
	require.NoError(t, err)
	for range 100 {
		p.B.W.Progress()
	}
	require.True(t, p.B.W.TupleQueues().Paused())
	require.False(t, masked.Done(), "it must match earlier messages before that of tag 17")
	_, _, ok := p.B.W.TagProbe(7, 0xf, false)
	require.False(t, ok)

	for k, tag := range []uint64{0x27, 0x37, 0x47} {
		finish(self.TagSend(tag, testenv.Pattern(8, k), nil))
	}
	finish(masked, nil)
	testenv.RequireBytes(t, testenv.Pattern(8, 0), got)
	assert.EqualValues(t, 0x27, info.Tag)
	_, *info, ok = p.B.W.TagProbe(7, 0xf, false)
	require.True(t, ok)
	assert.EqualValues(t, 0x37, info.Tag)
	for _, want := range []uint64{0x37, 0x47} {
		finish(p.B.W.TagRecv(got, 7, 0xf, info, nil))
		assert.Equal(t, want, info.Tag)
	}
	require.True(t, p.B.W.TupleQueues().Paused())

	for _, want := range []uint64{7, 7, 0x17} {
		r, err := p.B.W.TagRecv(got, 7, 0xf, info, nil)
		require.NoError(t, p.Finish(r, err))
		assert.Equal(t, want, info.Tag)
	}
	for _, s := range waits {
		require.NoError(t, p.Finish(s, nil))
	}
	settleQueues(p)
	assert.False(t, p.B.W.TupleQueues().Paused())
}

// TestTuple_SilentSenderEarlierReceive: a message matches the earlier of two receives, also if that is in a queue that
// is being stopped.
func TestTuple_SilentSenderEarlierReceive(t *testing.T) {
	s := &stuck{}
	p := ucppair.New(t, queues(s.layer()), tupleq).Both()
	self, finish := selfEP(p), finishByB(p)
	openTuple(p, 7)
	got := [2][]byte{make([]byte, 8), make([]byte, 8)}
	first, err := p.B.W.TagRecv(got[0], 7, exact, nil, nil)
	require.NoError(t, err)
	s.inside = true
	second, err := p.B.W.TagRecv(got[1], 7, 0xf, nil, nil)
	require.NoError(t, err)
	finish(self.TagSend(7, testenv.Pattern(8, 1), nil))
	for range 100 {
		p.B.W.Progress()
	}
	require.False(t, second.Done(), "the first one may get the message")
	s.inside = false
	finish(first, nil)
	testenv.RequireBytes(t, testenv.Pattern(8, 1), got[0])
	finish(self.TagSend(7, testenv.Pattern(8, 2), nil))
	finish(second, nil)
	testenv.RequireBytes(t, testenv.Pattern(8, 2), got[1])
	settleQueues(p)
}
