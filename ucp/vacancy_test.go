package ucp

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucs"
)

// service is a SharedWorker of a that never sleeps, with a goroutine in Serve, and b, which sends messages to it.
type service struct {
	*pair
	s      *SharedWorker
	served chan error // what Serve has returned
	stop   context.CancelFunc
}

func newService(t *testing.T, set tlsets.Set) *service {
	p := newPair(t, set, Config{})
	p.both().warm()
	p.a.w.engine.Spin.Fixed = -1
	ctx, stop := context.WithCancel(context.Background())
	x := &service{pair: p, s: p.a.w.Share(), served: make(chan error, 1), stop: stop}
	go func() { x.served <- x.s.Serve(ctx) }()
	t.Cleanup(stop)
	return x
}

// send sends a message of b.
func (x *service) send(tag uint64) {
	x.t.Helper()
	r, err := x.b.ep.TagSend(tag, []byte{byte(tag)}, nil)
	require.NoError(x.t, err)
	testenv.ProgressWithin(x.t, patience, func() bool { x.b.w.Progress(); return r == nil || r.Done() })
	if r != nil {
		require.NoError(x.t, r.take())
	}
}

// receive starts a goroutine that waits for a message.
func (x *service) receive(ctx context.Context, tag uint64) (received chan error) {
	received = make(chan error, 1)
	go func() {
		received <- x.s.Run(ctx, func() (*Request, error) { return x.a.w.TagRecv(make([]byte, 1), tag, exact, nil, nil) })
	}()
	return received
}

// within makes progress on b until something comes.
func (x *service) within(c chan error) (err error) {
	x.t.Helper()
	testenv.ProgressWithin(x.t, patience, func() bool {
		x.b.w.Progress()
		select {
		case err = <-c:
			return true
		default:
			return false
		}
	})
	return err
}

// blocked waits until n goroutines are blocked beside the one that makes progress.
func (x *service) blocked(n int) {
	x.t.Helper()
	testenv.ProgressWithin(x.t, patience, func() bool {
		x.s.mu.Lock()
		defer x.s.mu.Unlock()
		return x.s.driven.Load() && x.s.blocked == n
	})
}

// TestVacancy: a goroutine in Serve resigns when it has woken one that receives. As that one does not come back, Serve makes progress
// again.
func TestVacancy(t *testing.T) {
	for _, set := range []tlsets.Set{faketp.Set("like rc", faketp.LikeRC(), faketp.LikeUD()), tlsets.Real("sm", "sm"), tlsets.Real("tcp", "tcp")} {
		t.Run(set.Name, func(t *testing.T) {
			x := newService(t, set)
			x.blocked(0)
			received := x.receive(t.Context(), 1)
			x.blocked(1)
			x.send(1)
			require.NoError(t, x.within(received))
			assert.Positive(t, x.begun(), "Serve has resigned")
			x.blocked(0)
			var r *Request
			x.s.Do(func(w *Worker) {
				var err error
				r, err = w.TagRecv(make([]byte, 1), 2, exact, nil, nil)
				require.NoError(t, err)
			})
			x.send(2)
			done := func() (d bool) { x.s.Do(func(*Worker) { d = r.Done() }); return d }
			testenv.ProgressWithin(t, patience, func() bool { x.b.w.Progress(); return done() })
			x.s.Do(func(*Worker) { require.NoError(t, r.take()) })
			x.stop()
			require.ErrorIs(t, x.within(x.served), context.Canceled)
		})
	}
}

// TestVacancy_OthersGoOn: when a goroutine that made progress goes away, with its message or without one, the others receive
// theirs.
func TestVacancy_OthersGoOn(t *testing.T) {
	x := newService(t, faketp.Set("like rc", faketp.LikeRC(), faketp.LikeUD()))
	for k := range uint64(20) {
		ctx, cancel := context.WithCancel(t.Context())
		goes, stays := x.receive(ctx, 1), x.receive(t.Context(), 2)
		x.blocked(2)
		if k%2 == 0 {
			x.send(1)
			require.NoError(t, x.within(goes))
		} else {
			cancel()
			require.ErrorIs(t, x.within(goes), context.Canceled)
		}
		x.send(2)
		require.NoError(t, x.within(stays))
		cancel()
	}
	x.blocked(0)
	x.stop()
	require.ErrorIs(t, x.within(x.served), context.Canceled)
}

// TestVacancy_Close: Close ends goroutines that are blocked while nobody makes progress.
func TestVacancy_Close(t *testing.T) {
	for range 20 {
		x := newService(t, faketp.Set("like rc", faketp.LikeRC(), faketp.LikeUD()))
		blocked := x.receive(t.Context(), 2)
		received := x.receive(t.Context(), 1)
		x.blocked(2)
		x.send(1)
		require.NoError(t, x.within(received))
		require.NoError(t, x.s.Close())
		for _, c := range []chan error{x.served, blocked} {
			assert.ErrorIs(t, x.within(c), ucs.ErrClosed)
		}
	}
}

// TestVacancy_Timer: the timer ends a vacancy of which it has seen the beginning, and looks again after one that has begun since, at
// first soon, then less often.
func TestVacancy_Timer(t *testing.T) {
	s := newPair(t, faketp.Set("like rc", faketp.LikeRC()), Config{}).a.w.Share()
	s.mu.Lock()
	defer s.mu.Unlock()
	look := func() {
		s.mu.Unlock()
		s.endVacancy()
		s.mu.Lock()
	}
	v := &s.vacancy
	v.timer = time.AfterFunc(time.Hour, func() {}) // look is called instead
	v.quick = true
	s.beginVacancy()
	assert.True(t, v.open && v.set)
	assert.Equal(t, vacancyMin, v.limit)
	for _, limit := range []time.Duration{2 * vacancyMin, vacancyMax, vacancyMax} {
		v.fill()
		s.beginVacancy()
		look()
		assert.True(t, v.open && v.set, "others have left since")
		assert.Equal(t, limit, v.limit)
	}
	v.quick = true
	for _, skip := range []uint{2 * skipMin, 4 * skipMin} {
		look()
		assert.False(t, v.open, "nobody is back")
		assert.False(t, v.set)
		assert.Equal(t, skip, v.skip)
		for range skip {
			assert.False(t, v.mayBegin())
		}
		assert.True(t, v.mayBegin())
		s.beginVacancy()
	}
	v.skipped = skipMax
	look()
	assert.EqualValues(t, skipMax, v.skip)
	s.beginVacancy()
	v.fill()
	assert.EqualValues(t, skipMin, v.skipped)
}

// begun returns the number of vacancies.
func (x *service) begun() (n uint) {
	x.s.Do(func(*Worker) { n = x.s.vacancy.begun })
	return n
}

// TestVacancy_ForOthers: a goroutine that waits for a message of its own resigns after resignAfter messages for another one.
func TestVacancy_ForOthers(t *testing.T) {
	x := newService(t, faketp.Set("like rc", faketp.LikeRC(), faketp.LikeUD()))
	x.stop()
	require.ErrorIs(t, x.within(x.served), context.Canceled)
	ctx, cancel := context.WithCancel(t.Context())
	driver := x.receive(ctx, 1)
	x.blocked(0)
	for range resignAfter {
		require.Zero(t, x.begun())
		received := x.receive(t.Context(), 2)
		x.blocked(1)
		x.send(2)
		require.NoError(t, x.within(received))
	}
	assert.EqualValues(t, 1, x.begun())
	cancel()
	require.ErrorIs(t, x.within(driver), context.Canceled)
}

// TestVacancy_Slept: a vacancy begins at a message before which the driver has slept only if the goroutine that gets the messages has
// replied to the previous one, and messages are not rare.
func TestVacancy_Slept(t *testing.T) {
	x := newService(t, faketp.Set("like rc", faketp.LikeRC(), faketp.LikeUD()))
	x.s.Do(func(w *Worker) { w.engine.Spin.Fixed = 1 })
	t.Cleanup(func() { x.s.Do(func(*Worker) { x.s.setTimer(0) }) })
	one := func(replies bool) {
		if replies {
			n, err := x.s.StreamSend(t.Context(), x.a.ep, []byte{1})
			require.NoError(t, err)
			require.Equal(t, 1, n)
		}
		received := make(chan error, 1)
		go func() { _, err := x.s.StreamRecv(t.Context(), x.a.ep, make([]byte, 1)); received <- err }()
		untilParked(t, x.s, 2)
		require.NoError(t, x.sendBytes(2))
		require.NoError(t, x.within(received))
		// The second byte is received at once, which is neither a reply nor a wait.
		n, err := x.s.StreamRecv(t.Context(), x.a.ep, make([]byte, 1))
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	for range 10 {
		x.s.Do(func(*Worker) { x.s.vacancy.last = time.Time{} })
		one(true)
	}
	assert.Zero(t, x.begun(), "rare")
	x.s.Do(func(*Worker) {
		x.s.vacancy.set = true
		x.s.vacancy.timer = time.AfterFunc(time.Hour, x.s.endVacancy)
	})
	for range 10 {
		one(false)
	}
	assert.Zero(t, x.begun(), "no reply")
	for n := range uint(10) {
		one(true)
		assert.Equal(t, n+1, x.begun())
	}
	x.s.Do(func(*Worker) { x.s.setTimer(0) })
	x.stop()
	require.ErrorIs(t, x.within(x.served), context.Canceled)
}

// sendBytes sends n bytes on the stream of b.
func (x *service) sendBytes(n int) error {
	r, err := x.b.ep.StreamSend(make([]byte, n), nil)
	if r == nil {
		return err
	}
	testenv.ProgressWithin(x.t, patience, func() bool { x.b.w.Progress(); return r.Done() })
	return r.take()
}

// TestVacancy_Frequent: messages are frequent if they come within vacancyMax. The timer of the first vacancy of such messages is
// vacancyMax.
func TestVacancy_Frequent(t *testing.T) {
	s := newPair(t, faketp.Set("like rc", faketp.LikeRC()), Config{}).a.w.Share()
	s.mu.Lock()
	defer s.mu.Unlock()
	v, now := &s.vacancy, time.Now()
	assert.False(t, v.frequent(now))
	for _, frequent := range []bool{true, true, false, true} {
		now = now.Add(vacancyMax)
		if !frequent {
			now = now.Add(1)
		}
		assert.Equal(t, frequent, v.frequent(now))
	}
	v.timer = time.AfterFunc(time.Hour, func() {})
	s.beginVacancy()
	assert.Equal(t, vacancyMax, v.limit)
}

// TestVacancy_ManyTakeTurns: goroutines that receive in turns all receive.
func TestVacancy_ManyTakeTurns(t *testing.T) {
	x := newService(t, faketp.Set("like rc", faketp.LikeRC(), faketp.LikeUD()))
	var running sync.WaitGroup
	for k := range uint64(sharers) {
		running.Go(func() {
			for range 50 {
				err := x.s.Run(t.Context(), func() (*Request, error) {
					return x.a.w.TagRecv(make([]byte, 1), k, exact, nil, nil)
				})
				assert.NoError(t, err)
			}
		})
	}
	for i := range uint64(50 * sharers) {
		x.send(i % sharers)
	}
	all := make(chan error, 1)
	go func() { running.Wait(); all <- nil }()
	require.NoError(t, x.within(all))
	x.stop()
	require.ErrorIs(t, x.within(x.served), context.Canceled)
}
