package ucp

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucp/internal/engine"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// sharers is the number of goroutines that use a worker at a time.
const sharers = 8

// TestSharedWorker_NoWakeUpIsLost: goroutines do operations of all classes through one worker that sleeps whenever it
// may, without a timeout.
func TestSharedWorker_NoWakeUpIsLost(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		for _, w := range []*Worker{p.a.w, p.b.w} {
			w.engine.Spin.Fixed, w.engine.ParkLimit = engine.YieldPolls, time.Hour
		}
		p.connect()
		p.serve()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		s := p.a.w.Share()
		var running sync.WaitGroup
		for i := range sharers {
			running.Go(func() { p.share(ctx, t, s, i) })
		}
		running.Wait()
		assert.False(t, s.driven.Load())
		assert.Zero(t, s.blocked)
	})
}

// share does operations on a part of the memory.
func (p *pair) share(ctx context.Context, t *testing.T, s *SharedWorker, i int) {
	rng := rand.New(rand.NewPCG(1, uint64(i)))
	const slot = memLen / sharers / 2
	addr := p.b.mem.Addr() + uint64(i*slot)
	run := func(start func() (*Request, error)) bool { return assert.NoError(t, s.Run(ctx, start)) }
	for k := range 20 {
		want := pattern(1+rng.IntN(slot), k)
		ok := run(func() (*Request, error) { return p.a.ep.Put(want, addr, p.a.key, nil) })
		if rng.IntN(2) == 0 {
			s.Do(func(w *Worker) { w.Progress() })
		}
		ok = ok && run(p.a.ep.Flush)
		got := make([]byte, len(want))
		ok = ok && run(func() (*Request, error) { return p.a.ep.Get(got, addr, p.a.key, nil) })
		old := new(uint64)
		counter := p.b.mem.Addr() + memLen/2 + uint64(8*i)
		ok = ok && run(func() (*Request, error) {
			return p.a.ep.AtomicFetch(uct.AtomicAdd, 8, 1, old, counter, p.a.key)
		})
		if !ok || !assert.Equal(t, want, got) || !assert.Equal(t, uint64(k), *old) {
			return
		}
	}
}

// blockedOn makes goroutines wait until ctx ends for operations that the peer, which makes no progress, does not
// complete. It returns the results.
func blockedOn(ctx context.Context, p *pair, s *SharedWorker, n int) (ended func() []error) {
	errs := make([]error, n)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			errs[i] = s.Run(ctx, func() (*Request, error) {
				return p.a.ep.Put([]byte{1}, p.b.mem.Addr(), p.a.key, nil)
			})
		})
	}
	return func() []error { running.Wait(); return errs }
}

// untilParked waits until n goroutines are blocked in s, and one of them sleeps.
func untilParked(t *testing.T, s *SharedWorker, n int) {
	t.Helper()
	testenv.ProgressWithin(t, patience, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.parked && s.blocked == n-1
	})
}

// TestSharedWorker_FewPollsBeforeSleep: a goroutine sleeps after polls that take a microsecond or two.
func TestSharedWorker_FewPollsBeforeSleep(t *testing.T) {
	kind := faketp.LikeRC()
	kind.Unflagged = true
	p, f := fakePair(t, Config{}, kind, faketp.LikeUD())
	p.connect()
	p.a.w.engine.ParkLimit = time.Hour
	ctx, cancel := context.WithCancel(context.Background())
	s := p.a.w.Share()
	before := f.IfaceOf(0, 0).Polls
	ended := blockedOn(ctx, p, s, 1)
	untilParked(t, s, 1)
	s.Do(func(*Worker) {
		assert.Less(t, f.IfaceOf(0, 0).Polls-before, engine.YieldPolls/4)
	})
	cancel()
	assert.ErrorIs(t, ended()[0], context.Canceled)
}

// TestSharedWorker_IdleSleeps: blocked goroutines do not poll.
func TestSharedWorker_IdleSleeps(t *testing.T) {
	for _, n := range []int{1, sharers} {
		p, f := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
		p.connect()
		p.a.w.engine.ParkLimit = time.Hour
		ctx, cancel := context.WithCancel(context.Background())
		s := p.a.w.Share()
		ended := blockedOn(ctx, p, s, n)
		untilParked(t, s, n)
		s.Do(func(w *Worker) {
			polls := f.IfaceOf(0, 0).Polls + f.IfaceOf(0, 1).Polls
			assert.Less(t, polls, n*(maxChecksBeforeSleep+4*engine.YieldPolls), "a round or two for each goroutine")
		})
		cancel()
		for _, err := range ended() {
			assert.ErrorIs(t, err, context.Canceled)
		}
	}
}

// TestSharedWorker_SleepersAreNotChecked: a goroutine that makes progress checks no requests of the goroutines that sleep
// until their requests complete, however many they are.
func TestSharedWorker_SleepersAreNotChecked(t *testing.T) {
	const n = 100
	p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.connect()
	p.a.w.engine.ParkLimit = time.Hour
	ctx, cancel := context.WithCancel(context.Background())
	s := p.a.w.Share()
	ended := blockedOn(ctx, p, s, n)
	untilParked(t, s, n)
	s.Do(func(*Worker) {
		assert.Empty(t, s.byCondition)
		assert.Len(t, s.byRequest, n-1)
	})
	cancel()
	for _, err := range ended() {
		assert.ErrorIs(t, err, context.Canceled)
	}
	s.Do(func(*Worker) { assert.Empty(t, s.byRequest) })
}

// TestSharedWorker_StaleEnd: a request that has completed before its goroutine was woken may be that of another
// operation by then, whose goroutine continues to sleep.
func TestSharedWorker_StaleEnd(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	w := p.a.w
	s := w.Share()
	s.driven.Store(true)
	r := w.newRequest(nil, &tagRecvStage)
	sleeper := &sharedWaiter{wake: make(chan struct{}, 1)}
	s.byRequest[r], s.blocked = sleeper, 1
	r.flags |= reqWakes
	w.completed.woken = append(w.completed.woken, r) // of the previous operation
	s.wakeWaiters()
	assert.Empty(t, sleeper.wake)
	r.queueCompletion()
	s.wakeWaiters()
	assert.Len(t, sleeper.wake, 1)
	assert.Zero(t, s.blocked)
	w.recycle(r)
}

// TestSharedWorker_AnotherSleeps: when the call of the goroutine that sleeps in the kernel is canceled, another goroutine
// sleeps there.
func TestSharedWorker_AnotherSleeps(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.connect()
	p.a.w.engine.ParkLimit = time.Hour
	s := p.a.w.Share()
	first, giveUp := context.WithCancel(context.Background())
	gone := blockedOn(first, p, s, 1)
	untilParked(t, s, 1)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	rest := blockedOn(ctx, p, s, 3)
	untilParked(t, s, 4)
	giveUp()
	assert.ErrorIs(t, gone()[0], context.Canceled)
	p.serve()
	for _, err := range rest() {
		assert.NoError(t, err)
	}
}

// TestSharedWorker_Serves: a shared worker serves a peer while goroutines use it.
func TestSharedWorker_Serves(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		if p.oneself() {
			t.Skip("an initiator of its own")
		}
		p.b.w.engine.ParkLimit = time.Hour
		s := p.b.w.Share()
		ctx, cancel := context.WithCancel(context.Background())
		served := make(chan error)
		go func() { served <- s.Serve(ctx) }()
		p.connect()
		for i := range 3 {
			exercise(context.Background(), t, p.a.ep, p.a.key, i)
			s.Do(func(*Worker) {})
		}
		cancel()
		assert.ErrorIs(t, <-served, context.Canceled)
	})
}

// TestSharedWorker_Close: all blocked calls return, and so do later ones.
func TestSharedWorker_Close(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.connect()
	p.a.w.engine.ParkLimit = time.Hour
	s := p.a.w.Share()
	served := make(chan error)
	go func() { served <- s.Serve(context.Background()) }()
	ended := blockedOn(context.Background(), p, s, sharers)
	untilParked(t, s, sharers+1)
	require.NoError(t, s.Close())
	for _, err := range append(ended(), <-served, s.Serve(context.Background())) {
		assert.ErrorIs(t, err, ucs.ErrClosed)
	}
	require.NoError(t, s.Close())
}

// TestClose_EndsServe: any goroutine may close a worker at any time, also while another goroutine serves it or waits in
// it.
func TestClose_EndsServe(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		w, err := p.a.ctx.NewWorker(WorkerConfig{})
		require.NoError(t, err)
		w.engine.ParkLimit = time.Hour
		served := make(chan error)
		go func() { served <- w.Serve(context.Background()) }()
		require.NoError(t, w.Close())
		assert.ErrorIs(t, <-served, ucs.ErrClosed)
		assert.ErrorIs(t, w.Serve(context.Background()), ucs.ErrClosed)
	})
}

// TestClose_EndsServeWhileParked: as often as the test is repeated, over each transport.
func TestClose_EndsServeWhileParked(t *testing.T) {
	for _, set := range tlsets.RealSets() {
		set.Run(t, func(t *testing.T) {
			p := newPair(t, set, Config{})
			w, err := p.a.ctx.NewWorker(WorkerConfig{SpinPolls: engine.YieldPolls})
			require.NoError(t, err)
			w.engine.ParkLimit = time.Hour
			served := make(chan error)
			go func() { served <- w.Serve(context.Background()) }()
			testenv.ProgressWithin(t, patience, func() bool { return w.engine.Sleeps.Load() > 0 })
			require.NoError(t, w.Close())
			assert.ErrorIs(t, <-served, ucs.ErrClosed)
		})
	}
}

// TestClose_EndsWaiters: waiting calls return when the worker closes, and the caller must still release the requests.
func TestClose_EndsWaiters(t *testing.T) {
	for _, blocking := range []bool{false, true} {
		p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
		p.connect()
		p.a.w.engine.ParkLimit = time.Hour
		r, err := p.a.ep.Put([]byte{1}, p.b.mem.Addr(), p.a.key, nil)
		require.NoError(t, err)
		waited := make(chan error)
		go func() {
			if blocking {
				waited <- p.a.ep.FlushWait(context.Background())
			} else {
				waited <- r.Wait(context.Background())
			}
		}()
		testenv.ProgressWithin(t, patience, func() bool { return p.a.w.engine.Sleeps.Load() > 0 })
		require.NoError(t, p.a.w.Close())
		assert.ErrorIs(t, <-waited, ucs.ErrClosed)
		assert.ErrorIs(t, ended(t, r), ucs.ErrCanceled)
	}
}

// TestClose_ByMany: one of several calls of Close closes the worker, and all return after that.
func TestClose_ByMany(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeSM())
	var closing sync.WaitGroup
	served := make(chan error)
	go func() { served <- p.b.w.Serve(context.Background()) }()
	for range 4 {
		closing.Go(func() {
			assert.NoError(t, p.b.w.Close())
			assert.True(t, p.b.w.closed)
		})
	}
	closing.Wait()
	assert.ErrorIs(t, <-served, ucs.ErrClosed)
}

// TestBlocking_TwoAtOnce: two goroutines that use a worker at the same time get an error.
func TestBlocking_TwoAtOnce(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeSM())
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- p.b.w.Serve(ctx) }()
	testenv.ProgressWithin(t, patience, func() bool { return p.b.w.engine.Turn.Taken() })
	assert.PanicsWithValue(t, uct.TwoAtOnce, func() { _ = p.b.w.Serve(ctx) })
	cancel()
	assert.ErrorIs(t, <-served, context.Canceled)
}

// TestSharedWorker_GiveUpWhileAnotherSleeps: a canceled call waits for its buffer until the limit, and not longer
// because another goroutine sleeps.
func TestSharedWorker_GiveUpWhileAnotherSleeps(t *testing.T) {
	p, f := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.a.w.bufferWaitLimit, p.a.w.engine.ParkLimit = time.Millisecond, time.Hour
	p.connect().warm()
	s := p.a.w.Share()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- s.Serve(ctx) }()
	untilParked(t, s, 1)
	f.Mu.Lock()
	for _, i := range f.Ifaces {
		i.Frozen = true
	}
	f.Mu.Unlock()
	err := s.Run(overCtx(), func() (*Request, error) {
		return p.a.ep.Get(p.a.mem.Bytes()[:4000], p.b.mem.Addr(), p.a.key, &OpParams{Mem: p.a.mem})
	})
	assert.ErrorIs(t, err, context.Canceled)
	s.Do(func(*Worker) { assert.ErrorContains(t, p.a.ep.Err(), "still uses the buffer") })
	cancel()
	assert.ErrorIs(t, <-served, context.Canceled)
	f.Mu.Lock()
	defer f.Mu.Unlock()
	for _, i := range f.Ifaces {
		i.Frozen = false
	}
}

// TestSharedWorker_EndedWhileAsleep: a sleeping goroutine wakes when another goroutine cancels its request, makes the
// last progress that its Until needs, or closes the EP.
func TestSharedWorker_EndedWhileAsleep(t *testing.T) {
	for name, end := range map[string]func(p *pair, r *Request, over *bool){
		"canceled": func(_ *pair, r *Request, _ *bool) { assert.True(t, r.Cancel()) },
		"until":    func(_ *pair, _ *Request, over *bool) { *over = true },
		"closed":   func(p *pair, _ *Request, _ *bool) { assert.NoError(t, releaseRequest(p.a.ep.Close(CloseForce))) },
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
			p.connect()
			p.a.w.engine.ParkLimit = time.Hour
			s := p.a.w.Share()
			n, over := 0, false
			r, err := p.a.ep.StreamRecv(make([]byte, 1), true, &n, nil)
			require.NoError(t, err)
			ended := make(chan error)
			go func() { ended <- s.Until(context.Background(), func() bool { return over || r.Done() }) }()
			untilParked(t, s, 1)
			s.Do(func(*Worker) { end(p, r, &over) })
			assert.NoError(t, <-ended)
			r.Cancel()
			r.Release()
		})
	}
}

// TestSharedWorker_TwoWaitForOne: two goroutines wait for a request. The first one releases it, and the other one gets
// an error.
func TestSharedWorker_TwoWaitForOne(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.connect()
	p.a.w.engine.ParkLimit = time.Hour
	s := p.a.w.Share()
	r, err := p.a.w.TagRecv(make([]byte, 1), 1, exact, nil, nil)
	require.NoError(t, err)
	ended := make(chan error)
	for range 2 {
		go func() { ended <- s.Run(context.Background(), func() (*Request, error) { return r, nil }) }()
	}
	untilParked(t, s, 2)
	s.Do(func(*Worker) { assert.True(t, r.Cancel()) })
	how := []error{<-ended, <-ended}
	if !errors.Is(how[0], ucs.ErrCanceled) {
		how[0], how[1] = how[1], how[0]
	}
	assert.ErrorIs(t, how[0], ucs.ErrCanceled)
	assert.ErrorIs(t, how[1], ucs.ErrInvalidParam)
}
