package ucp_test

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
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/engine"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// sharers is the number of goroutines that use a worker at a time.
const sharers = 8

// TestSharedWorker_NoWakeUpIsLost: goroutines do operations of all classes through one worker that sleeps whenever it
// may, without a timeout.
func TestSharedWorker_NoWakeUpIsLost(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		for _, w := range []*ucp.Worker{p.A.W, p.B.W} {
			w.Engine().Spin.Fixed, w.Engine().ParkLimit = engine.YieldPolls, time.Hour
		}
		p.Connect()
		serveB(p)
		ctx, cancel := context.WithTimeout(context.Background(), testenv.Watchdog)
		defer cancel()
		s := p.A.W.Share()
		var running sync.WaitGroup
		for i := range sharers {
			running.Go(func() { shareOps(ctx, t, p, s, i) })
		}
		running.Wait()
		assert.False(t, s.Driven())
		assert.Zero(t, s.Blocked())
	})
}

// shareOps does operations on a part of the memory.
func shareOps(ctx context.Context, t *testing.T, p *ucppair.Pair, s *ucp.SharedWorker, i int) {
	rng := rand.New(rand.NewPCG(1, uint64(i)))
	const slot = tlsets.MemLen / sharers / 2
	addr := p.B.Mem.Addr() + uint64(i*slot)
	run := func(start func() (*ucp.Request, error)) bool { return assert.NoError(t, s.Run(ctx, start)) }
	for k := range 20 {
		want := testenv.Pattern(1+rng.IntN(slot), k)
		ok := run(func() (*ucp.Request, error) { return p.A.EP.Put(want, addr, p.A.Key, nil) })
		if rng.IntN(2) == 0 {
			s.Do(func(w *ucp.Worker) { w.Progress() })
		}
		ok = ok && run(p.A.EP.Flush)
		got := make([]byte, len(want))
		ok = ok && run(func() (*ucp.Request, error) { return p.A.EP.Get(got, addr, p.A.Key, nil) })
		old := new(uint64)
		counter := p.B.Mem.Addr() + tlsets.MemLen/2 + uint64(8*i)
		ok = ok && run(func() (*ucp.Request, error) {
			return p.A.EP.AtomicFetch(uct.AtomicAdd, 8, 1, old, counter, p.A.Key)
		})
		if !ok || !assert.Equal(t, want, got) || !assert.Equal(t, uint64(k), *old) {
			return
		}
	}
}

// blockedOn makes goroutines wait until ctx ends for operations that the peer, which makes no progress, does not
// complete. It returns the results.
func blockedOn(ctx context.Context, p *ucppair.Pair, s *ucp.SharedWorker, n int) (ended func() []error) {
	errs := make([]error, n)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			errs[i] = s.Run(ctx, func() (*ucp.Request, error) {
				return p.A.EP.Put([]byte{1}, p.B.Mem.Addr(), p.A.Key, nil)
			})
		})
	}
	return func() []error { running.Wait(); return errs }
}

// untilParked waits until n goroutines are blocked in s, and one of them sleeps.
func untilParked(t *testing.T, s *ucp.SharedWorker, n int) {
	t.Helper()
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		parked, blocked := s.Parked()
		return parked && blocked == n-1
	})
}

// TestSharedWorker_FewPollsBeforeSleep: a goroutine sleeps after polls that take a microsecond or two.
func TestSharedWorker_FewPollsBeforeSleep(t *testing.T) {
	kind := faketp.LikeRC()
	kind.Unflagged = true
	p, f := ucppair.Fake(t, ucp.Config{}, kind, faketp.LikeUD())
	p.Connect()
	p.A.W.Engine().ParkLimit = time.Hour
	ctx, cancel := context.WithCancel(context.Background())
	s := p.A.W.Share()
	before := f.IfaceOf(0, 0).Polls
	ended := blockedOn(ctx, p, s, 1)
	untilParked(t, s, 1)
	s.Do(func(*ucp.Worker) {
		assert.Less(t, f.IfaceOf(0, 0).Polls-before, engine.YieldPolls/4)
	})
	cancel()
	assert.ErrorIs(t, ended()[0], context.Canceled)
}

// TestSharedWorker_IdleSleeps: blocked goroutines do not poll.
func TestSharedWorker_IdleSleeps(t *testing.T) {
	for _, n := range []int{1, sharers} {
		p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
		p.Connect()
		p.A.W.Engine().ParkLimit = time.Hour
		ctx, cancel := context.WithCancel(context.Background())
		s := p.A.W.Share()
		ended := blockedOn(ctx, p, s, n)
		untilParked(t, s, n)
		s.Do(func(w *ucp.Worker) {
			polls := f.IfaceOf(0, 0).Polls + f.IfaceOf(0, 1).Polls
			assert.Less(t, polls, n*(ucp.ChecksBeforeSleep+4*engine.YieldPolls), "a round or two for each goroutine")
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
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.Connect()
	p.A.W.Engine().ParkLimit = time.Hour
	ctx, cancel := context.WithCancel(context.Background())
	s := p.A.W.Share()
	ended := blockedOn(ctx, p, s, n)
	untilParked(t, s, n)
	s.Do(func(*ucp.Worker) {
		byCondition, byRequest := s.Waiters()
		assert.Zero(t, byCondition)
		assert.Equal(t, n-1, byRequest)
	})
	cancel()
	for _, err := range ended() {
		assert.ErrorIs(t, err, context.Canceled)
	}
	s.Do(func(*ucp.Worker) {
		_, byRequest := s.Waiters()
		assert.Zero(t, byRequest)
	})
}

// TestSharedWorker_AnotherSleeps: when the call of the goroutine that sleeps in the kernel is canceled, another goroutine
// sleeps there.
func TestSharedWorker_AnotherSleeps(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.Connect()
	p.A.W.Engine().ParkLimit = time.Hour
	s := p.A.W.Share()
	first, giveUp := context.WithCancel(context.Background())
	gone := blockedOn(first, p, s, 1)
	untilParked(t, s, 1)
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Watchdog)
	defer cancel()
	rest := blockedOn(ctx, p, s, 3)
	untilParked(t, s, 4)
	giveUp()
	assert.ErrorIs(t, gone()[0], context.Canceled)
	serveB(p)
	for _, err := range rest() {
		assert.NoError(t, err)
	}
}

// TestSharedWorker_Serves: a shared worker serves a peer while goroutines use it.
func TestSharedWorker_Serves(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		if p.Oneself() {
			t.Skip("an initiator of its own")
		}
		p.B.W.Engine().ParkLimit = time.Hour
		s := p.B.W.Share()
		ctx, cancel := context.WithCancel(context.Background())
		served := make(chan error)
		go func() { served <- s.Serve(ctx) }()
		p.Connect()
		for i := range 3 {
			exercise(context.Background(), t, p.A.EP, p.A.Key, i)
			s.Do(func(*ucp.Worker) {})
		}
		cancel()
		assert.ErrorIs(t, <-served, context.Canceled)
	})
}

// TestSharedWorker_Close: all blocked calls return, and so do later ones.
func TestSharedWorker_Close(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.Connect()
	p.A.W.Engine().ParkLimit = time.Hour
	s := p.A.W.Share()
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
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		w, err := p.A.Ctx.NewWorker(ucp.WorkerConfig{})
		require.NoError(t, err)
		w.Engine().ParkLimit = time.Hour
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
			p := ucppair.New(t, set, ucp.Config{})
			w, err := p.A.Ctx.NewWorker(ucp.WorkerConfig{SpinPolls: engine.YieldPolls})
			require.NoError(t, err)
			w.Engine().ParkLimit = time.Hour
			served := make(chan error)
			go func() { served <- w.Serve(context.Background()) }()
			testenv.ProgressWithin(t, testenv.Watchdog, func() bool { return w.Engine().Sleeps.Load() > 0 })
			require.NoError(t, w.Close())
			assert.ErrorIs(t, <-served, ucs.ErrClosed)
		})
	}
}

// TestClose_EndsWaiters: waiting calls return when the worker closes, and the caller must still release the requests.
func TestClose_EndsWaiters(t *testing.T) {
	for _, blocking := range []bool{false, true} {
		p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
		p.Connect()
		p.A.W.Engine().ParkLimit = time.Hour
		r, err := p.A.EP.Put([]byte{1}, p.B.Mem.Addr(), p.A.Key, nil)
		require.NoError(t, err)
		waited := make(chan error)
		go func() {
			if blocking {
				waited <- p.A.EP.FlushWait(context.Background())
			} else {
				waited <- r.Wait(context.Background())
			}
		}()
		testenv.ProgressWithin(t, testenv.Watchdog, func() bool { return p.A.W.Engine().Sleeps.Load() > 0 })
		require.NoError(t, p.A.W.Close())
		assert.ErrorIs(t, <-waited, ucs.ErrClosed)
		assert.ErrorIs(t, ended(t, r), ucs.ErrCanceled)
	}
}

// TestClose_ByMany: one of several calls of Close closes the worker, and all return after that.
func TestClose_ByMany(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeSM())
	var closing sync.WaitGroup
	served := make(chan error)
	go func() { served <- p.B.W.Serve(context.Background()) }()
	for range 4 {
		closing.Go(func() {
			assert.NoError(t, p.B.W.Close())
			assert.True(t, p.B.W.Closed())
		})
	}
	closing.Wait()
	assert.ErrorIs(t, <-served, ucs.ErrClosed)
}

// TestBlocking_TwoAtOnce: two goroutines that use a worker at the same time get an error.
func TestBlocking_TwoAtOnce(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeSM())
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- p.B.W.Serve(ctx) }()
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool { return p.B.W.Engine().Turn.Taken() })
	assert.PanicsWithValue(t, uct.TwoAtOnce, func() { _ = p.B.W.Serve(ctx) })
	cancel()
	assert.ErrorIs(t, <-served, context.Canceled)
}

// TestSharedWorker_GiveUpWhileAnotherSleeps: a canceled call waits for its buffer until the limit, and not longer
// because another goroutine sleeps.
func TestSharedWorker_GiveUpWhileAnotherSleeps(t *testing.T) {
	p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.A.W.LimitBufferWait(time.Millisecond)
	p.A.W.Engine().ParkLimit = time.Hour
	p.Connect().Warm()
	s := p.A.W.Share()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- s.Serve(ctx) }()
	untilParked(t, s, 1)
	f.Mu.Lock()
	for _, i := range f.Ifaces {
		i.Frozen = true
	}
	f.Mu.Unlock()
	err := s.Run(overCtx(), func() (*ucp.Request, error) {
		return p.A.EP.Get(p.A.Mem.Bytes()[:4000], p.B.Mem.Addr(), p.A.Key, &ucp.OpParams{Mem: p.A.Mem})
	})
	assert.ErrorIs(t, err, context.Canceled)
	s.Do(func(*ucp.Worker) { assert.ErrorContains(t, p.A.EP.Err(), "still uses the buffer") })
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
	for name, end := range map[string]func(p *ucppair.Pair, r *ucp.Request, over *bool){
		"canceled": func(_ *ucppair.Pair, r *ucp.Request, _ *bool) { assert.True(t, r.Cancel()) },
		"until":    func(_ *ucppair.Pair, _ *ucp.Request, over *bool) { *over = true },
		"closed": func(p *ucppair.Pair, _ *ucp.Request, _ *bool) {
			assert.NoError(t, ucppair.Release(p.A.EP.Close(ucp.CloseForce)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
			p.Connect()
			p.A.W.Engine().ParkLimit = time.Hour
			s := p.A.W.Share()
			n, over := 0, false
			r, err := p.A.EP.StreamRecv(make([]byte, 1), true, &n, nil)
			require.NoError(t, err)
			ended := make(chan error)
			go func() { ended <- s.Until(context.Background(), func() bool { return over || r.Done() }) }()
			untilParked(t, s, 1)
			s.Do(func(*ucp.Worker) { end(p, r, &over) })
			assert.NoError(t, <-ended)
			r.Cancel()
			r.Release()
		})
	}
}

// TestSharedWorker_TwoWaitForOne: two goroutines wait for a request. The first one releases it, and the other one gets
// an error.
func TestSharedWorker_TwoWaitForOne(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.Connect()
	p.A.W.Engine().ParkLimit = time.Hour
	s := p.A.W.Share()
	r, err := p.A.W.TagRecv(make([]byte, 1), 1, exact, nil, nil)
	require.NoError(t, err)
	ended := make(chan error)
	for range 2 {
		go func() { ended <- s.Run(context.Background(), func() (*ucp.Request, error) { return r, nil }) }()
	}
	untilParked(t, s, 2)
	s.Do(func(*ucp.Worker) { assert.True(t, r.Cancel()) })
	how := []error{<-ended, <-ended}
	if !errors.Is(how[0], ucs.ErrCanceled) {
		how[0], how[1] = how[1], how[0]
	}
	assert.ErrorIs(t, how[0], ucs.ErrCanceled)
	assert.ErrorIs(t, how[1], ucs.ErrInvalidParam)
}
