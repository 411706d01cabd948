package ucp

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
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

// self makes an EP of b to itself.
func (p *pair) self() *EP {
	p.t.Helper()
	e, err := p.b.w.NewEP(p.b.w.Address(), EPConfig{})
	require.NoError(p.t, err)
	return e
}

// alone completes an operation of b while a makes no progress.
func (p *pair) alone(r *Request, err error) {
	p.t.Helper()
	require.NoError(p.t, err)
	if r == nil {
		return
	}
	testenv.ProgressWithin(p.t, patience, func() bool {
		p.b.w.Progress()
		return r.Done()
	})
	require.NoError(p.t, r.take())
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
		p := newPair(t, queues(s.layer()), tupleq).both()
		self := p.self()
		p.openTuple(7)
		got := make([]byte, 64)
		first, err := p.b.w.TagRecv(got, 7, exact, nil, nil)
		require.NoError(t, err)
		s.inside = true
		masked, err := p.b.w.TagRecv(make([]byte, 64), 7, 0xf, nil, nil)
		require.NoError(t, err)
		for range 2 * stopLooks {
			p.step()
		}
		tries := s.tries
		for range 2 * stopLooks {
			p.step()
		}
		assert.Equal(t, tries, s.tries, "tried without a pause")
		out, err := self.TagSend(0x17, pattern(64, 1), nil)
		require.NoError(t, err)
		p.alone(masked, nil)
		require.NoError(t, p.finish(out, nil))
		for range 3 {
			time.Sleep(stopPause)
			synctest.Wait()
			p.b.spin()
			tries++
			assert.Equal(t, tries, s.tries)
		}
		s.inside = false
		time.Sleep(stopPause)
		synctest.Wait()
		out, err = p.a.ep.TagSend(7, pattern(64, 2), nil)
		require.NoError(t, err)
		require.NoError(t, p.finish(first, nil))
		require.NoError(t, p.finish(out, nil))
		requireBytes(t, pattern(64, 2), got)
		p.settle()
		assert.False(t, p.b.w.tuples.in.Paused())
	})
}

// TestTuple_SilentSender: a sender that makes no progress while its queue closes does not delay messages of others. Its
// own messages keep their order.
func TestTuple_SilentSender(t *testing.T) {
	p := newPair(t, queues(), tupleq).both()
	self := p.self()
	p.openTuple(7)
	p.alone(self.TagSend(1, nil, nil))
	p.alone(p.b.w.TagRecv(nil, 1, exact, nil, nil))
	waits := p.sends(7, 2)
	waits = append(waits, p.sends(0x17, 1)...)
	p.until(func() bool { return p.b.w.tag.table.Unexpected() == 1 })

	info, got := &TagInfo{}, make([]byte, 8)
	masked, err := p.b.w.TagRecv(got, 7, 0xf, info, nil)
	require.NoError(t, err)
	for range 100 {
		p.b.w.Progress()
	}
	require.True(t, p.b.w.tuples.in.Paused())
	require.False(t, masked.Done(), "it must match earlier messages before that of tag 17")
	_, _, ok := p.b.w.TagProbe(7, 0xf, false)
	require.False(t, ok)

	for k, tag := range []uint64{0x27, 0x37, 0x47} {
		p.alone(self.TagSend(tag, pattern(8, k), nil))
	}
	p.alone(masked, nil)
	requireBytes(t, pattern(8, 0), got)
	assert.EqualValues(t, 0x27, info.Tag)
	_, *info, ok = p.b.w.TagProbe(7, 0xf, false)
	require.True(t, ok)
	assert.EqualValues(t, 0x37, info.Tag)
	for _, want := range []uint64{0x37, 0x47} {
		p.alone(p.b.w.TagRecv(got, 7, 0xf, info, nil))
		assert.Equal(t, want, info.Tag)
	}
	require.True(t, p.b.w.tuples.in.Paused())

	for _, want := range []uint64{7, 7, 0x17} {
		r, err := p.b.w.TagRecv(got, 7, 0xf, info, nil)
		require.NoError(t, p.finish(r, err))
		assert.Equal(t, want, info.Tag)
	}
	for _, s := range waits {
		require.NoError(t, p.finish(s, nil))
	}
	p.settle()
	assert.False(t, p.b.w.tuples.in.Paused())
}

// TestTuple_SilentSenderEarlierReceive: a message matches the earlier of two receives, also if that is in a queue that
// is being stopped.
func TestTuple_SilentSenderEarlierReceive(t *testing.T) {
	s := &stuck{}
	p := newPair(t, queues(s.layer()), tupleq).both()
	self := p.self()
	p.openTuple(7)
	got := [2][]byte{make([]byte, 8), make([]byte, 8)}
	first, err := p.b.w.TagRecv(got[0], 7, exact, nil, nil)
	require.NoError(t, err)
	s.inside = true
	second, err := p.b.w.TagRecv(got[1], 7, 0xf, nil, nil)
	require.NoError(t, err)
	p.alone(self.TagSend(7, pattern(8, 1), nil))
	for range 100 {
		p.b.w.Progress()
	}
	require.False(t, second.Done(), "the first one may get the message")
	s.inside = false
	p.alone(first, nil)
	requireBytes(t, pattern(8, 1), got[0])
	p.alone(self.TagSend(7, pattern(8, 2), nil))
	p.alone(second, nil)
	requireBytes(t, pattern(8, 2), got[1])
	p.settle()
}
