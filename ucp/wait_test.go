package ucp_test

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
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/engine"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// serveB starts a goroutine that makes progress on b until the test ends. If b and a are one worker, that makes its own
// progress.
func serveB(p *ucppair.Pair) {
	if p.Oneself() {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = p.B.W.Serve(ctx) })
	p.T.Cleanup(func() {
		cancel()
		p.B.W.Signal()
		wg.Wait()
	})
}

func TestBlockingForms(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		serveB(p)
		ctx := context.Background()
		ep, key, addr := p.A.EP, p.A.Key, p.B.Mem.Addr()
		require.NoError(t, ep.PutWait(ctx, testenv.Pattern(5000, 2), addr+64, key, nil))
		require.NoError(t, ep.FlushWait(ctx))
		got := make([]byte, 5000)
		require.NoError(t, ep.GetWait(ctx, got, addr+64, key, nil))
		testenv.RequireBytes(t, testenv.Pattern(5000, 2), got)
		old, err := ep.AtomicFetchWait(ctx, uct.AtomicAdd, 8, 5, addr, key)
		require.NoError(t, err)
		assert.Equal(t, uint64(0), old)
		old, err = ep.AtomicCSwapWait(ctx, 8, 5, 9, addr, key)
		require.NoError(t, err)
		assert.Equal(t, uint64(5), old)
		require.NoError(t, p.A.W.FlushWait(ctx))
		require.NoError(t, ep.CloseWait(ctx, ucp.CloseFlush))
	})
}

// TestWait_Parks: an idle waiter sleeps, and the transport wakes it.
func TestWait_Parks(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.A.W.Engine().Spin.Fixed = engine.YieldPolls
	p.B.W.Engine().Spin.Fixed = engine.YieldPolls
	p.Connect()
	r, err := p.A.EP.Put([]byte{1}, p.B.Mem.Addr(), p.A.Key, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	waited, before := make(chan error), counters(p.A.W)["worker.sleeps"]
	go func() { waited <- r.Wait(ctx) }()
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool { return counters(p.A.W)["worker.sleeps"] > before })
	cancel()
	assert.ErrorIs(t, <-waited, context.Canceled, "the peer makes no progress")

	serveB(p)
	require.NoError(t, r.Wait(context.Background()))
	require.NoError(t, p.A.EP.FlushWait(context.Background()))
}

func TestWait_Canceled(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.Connect()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	got := []byte{42}
	assert.ErrorIs(t, p.A.EP.GetWait(ctx, got, p.B.Mem.Addr(), p.A.Key, nil), context.Canceled)
	r, err := p.A.EP.Put([]byte{1}, p.B.Mem.Addr(), p.A.Key, nil)
	require.NoError(t, err)
	assert.ErrorIs(t, p.A.EP.FlushWait(ctx), context.Canceled)
	require.NoError(t, p.Finish(r, nil))
	require.NoError(t, p.Flush())
	assert.Equal(t, []byte{42}, got, "the canceled get does not write")
}

// TestWait_CancelWakesTheSleeper: a context that is canceled wakes the waiter.
func TestWait_CancelWakesTheSleeper(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.A.W.Engine().Spin.Fixed = engine.YieldPolls
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- p.A.W.Serve(ctx) }()
	cancel()
	assert.ErrorIs(t, <-done, context.Canceled)
}

func TestSignal_BeforeAnySleep(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeSM())
	assert.NotPanics(t, p.A.W.Signal)
}

func TestRequest_TestAndCancel(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.Connect()
	waiting, err := p.A.EP.Put([]byte{1}, p.B.Mem.Addr(), p.A.Key, nil)
	require.NoError(t, err)
	second, err := p.A.EP.Put([]byte{2}, p.B.Mem.Addr()+1, p.A.Key, nil)
	require.NoError(t, err)
	assert.Equal(t, ucs.StatusInProgress, waiting.Status())
	assert.True(t, waiting.Cancel())
	assert.False(t, waiting.Cancel(), "once")
	done, err := waiting.Test()
	assert.True(t, done)
	assert.ErrorIs(t, err, ucs.ErrCanceled)
	p.Until(func() bool {
		done, err = second.Test()
		return done
	})
	assert.NoError(t, err)
	require.NoError(t, p.Flush())
	assert.Equal(t, []byte{0, 2}, p.B.Mem.Bytes()[:2])

	// In the queue of a lane, after posted operations.
	var reqs []*ucp.Request
	for i := range 20 {
		r, err := p.A.EP.Put(testenv.Pattern(100, 1), p.B.Mem.Addr()+uint64(100*i), p.A.Key, nil)
		require.NoError(t, err)
		if r != nil {
			reqs = append(reqs, r)
		}
	}
	last := reqs[len(reqs)-1]
	assert.True(t, last.Cancel())
	last.Release()
	assert.False(t, func() bool { r, _ := p.A.EP.Flush(); defer r.Release(); return r.Cancel() }(), "a flush")
	for _, r := range reqs[:len(reqs)-1] {
		require.NoError(t, p.Finish(r, nil))
	}
	require.NoError(t, p.Flush())
	assert.Zero(t, p.B.Mem.Bytes()[1900], "the last one was not posted")
}

// TestWait_NoWakeUpIsLost: both sides sleep at each step, without a timeout.
func TestWait_NoWakeUpIsLost(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		for _, w := range []*ucp.Worker{p.A.W, p.B.W} {
			w.Engine().Spin.Fixed, w.Engine().ParkLimit = engine.YieldPolls, time.Hour
		}
		p.Connect()
		serveB(p)
		ctx, cancel := context.WithTimeout(context.Background(), testenv.Watchdog)
		defer cancel()
		ep, key, addr := p.A.EP, p.A.Key, p.B.Mem.Addr()
		for i := range 30 {
			want := testenv.Pattern(3000*(1+i%5), i)
			require.NoError(t, ep.PutWait(ctx, want, addr+64, key, nil))
			require.NoError(t, ep.FlushWait(ctx))
			got := make([]byte, len(want))
			require.NoError(t, ep.GetWait(ctx, got, addr+64, key, nil))
			testenv.RequireBytes(t, want, got)
			old, err := ep.AtomicFetchWait(ctx, uct.AtomicAdd, 4, 1, addr, key)
			require.NoError(t, err)
			assert.Equal(t, uint64(i), old)
		}
		require.NoError(t, ep.CloseWait(ctx, ucp.CloseFlush))
	})
}

// TestGiveUp: after a canceled call the caller may use the buffer. Later messages are received.
func TestGiveUp(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		w := p.B.W
		given, buf := make([]byte, 8), make([]byte, 8)
		r, err := w.TagRecv(given, 1, exact, nil, nil)
		require.NoError(t, err)
		r.GiveUp()
		sent := tagSend(p, 1, testenv.Pattern(8, 5))
		waitUnexpected(p, 1)
		found := false
		require.NoError(t, w.Until(t.Context(), func() bool {
			_, _, found = w.TagProbe(1, exact, false)
			return found
		}))
		require.NoError(t, p.Finish(w.TagRecv(buf, 1, exact, nil, nil)))
		require.NoError(t, p.Finish(sent, nil))
		testenv.RequireBytes(t, testenv.Pattern(8, 5), buf)
		testenv.RequireBytes(t, make([]byte, 8), given)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, w.Until(ctx, func() bool { return false }), context.Canceled)
		last, err := w.TagRecv(buf, 2, exact, nil, nil)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		last.GiveUp()
		require.ErrorIs(t, w.Until(t.Context(), func() bool { return false }), ucs.ErrClosed)
	})
}

// TestFlushWait_FullLane: a flush that waits for resources of the lane needs no request.
func TestFlushWait_FullLane(t *testing.T) {
	for _, tls := range []string{`\rc`, "rc_mlx5"} {
		t.Run(tls, func(t *testing.T) {
			p := ucppair.New(t, tlsets.Real(tls, tls), ucp.Config{})
			p.Connect().Warm()
			w, x := p.A.W, p.A.EP.Lane(wireup.RMA)
			err := error(nil)
			for err == nil {
				err = x.Put.PutShort([]byte{1}, p.B.Mem.Addr(), p.A.Key.RMA())
			}
			_, err = x.EP.Flush(nil)
			require.Equal(t, uct.ErrNoResource, err)
			requests := w.RequestsMade()
			w.WithoutPool(func() { require.NoError(t, p.A.EP.FlushWait(t.Context())) })
			assert.Equal(t, requests, w.RequestsMade(), "no request was allocated")
		})
	}
}

// untilDrained waits with until for a value of a channel, once for each number of calls of done before the value is
// sent: so done returns true in each of the places that call it.
func untilDrained(t *testing.T, until func(context.Context, func() bool) error, calls int) {
	t.Helper()
	for at := range calls {
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Watchdog)
		values, called := make(chan int, 1), 0
		err := until(ctx, func() bool {
			if called++; called == at+1 {
				values <- at
			}
			select {
			case <-values:
				return true
			default:
				return false
			}
		})
		cancel()
		require.NoError(t, err, "value at call %d", at+1)
		require.Equal(t, at+1, called, "done is not called again")
	}
}

// TestUntil_DrainsAChannel: done is not called again after it has returned true, also if that is just before the
// goroutine sleeps.
func TestUntil_DrainsAChannel(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	e := p.A.W.Engine()
	e.Spin.Fixed, e.ParkLimit = engine.YieldPolls, time.Millisecond
	untilDrained(t, p.A.W.Until, 3*engine.YieldPolls)
	untilDrained(t, p.A.W.Share().Until, 3*engine.YieldPolls)
}

// TestUntil_DrainsAChannelWhileAnotherDrives: the goroutine that makes progress calls the done of a goroutine that
// sleeps.
func TestUntil_DrainsAChannelWhileAnotherDrives(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	e := p.A.W.Engine()
	e.Spin.Fixed, e.ParkLimit = engine.YieldPolls, time.Millisecond
	s := p.A.W.Share()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(ctx) })
	testenv.ProgressWithin(t, testenv.Watchdog, s.Driven)
	untilDrained(t, s.Until, 10)
	cancel()
	p.A.W.Signal()
	wg.Wait()
}

// TestSleep_DoneStartsOperations: operations that the function of Until starts just before the sleep do not wait for
// its end, before and after they have a lane.
func TestSleep_DoneStartsOperations(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("self", "self"), ucp.Config{})
	p.A.Dial(t, &p.A)
	for range 2 { // the first time there is no lane
		idle(p)
		started := false
		ready, err := p.A.W.Engine().ReadyToSleep(func() bool {
			if !started {
				started = true
				assert.NoError(t, ucppair.Release(p.A.EP.TagSend(1, []byte{1}, nil)))
			}
			return false
		})
		require.NoError(t, err)
		require.True(t, started)
		require.False(t, ready)
		require.NoError(t, p.Finish(p.A.W.TagRecv(make([]byte, 1), 1, exact, nil, nil)))
	}
}

// TestSleep_AlarmBeforeTheFirst: an alarm that fires before the first sleep does not wait for the end of the sleep.
func TestSleep_AlarmBeforeTheFirst(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	e := p.A.W.Engine()
	e.Alarm.Set(e.Alarm.Now())
	testenv.ProgressWithin(t, testenv.Watchdog, e.Alarm.Due)
	e.Ticks = engine.IdleTicks
	ready, err := e.ReadyToSleep(func() bool { return false })
	require.NoError(t, err)
	assert.False(t, ready)
}

// TestSleep_DoneFillsTheSocket: operations that the function of Until starts just before the sleep fill the socket. The
// sleeper wakes when it is writable again.
func TestSleep_DoneFillsTheSocket(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("tcp", "tcp"), ucp.Config{})
	const length = 64 << 20
	long, err := p.B.Ctx.MemAlloc(length)
	require.NoError(t, err)
	defer func() { require.NoError(t, long.Close()) }()
	p.Connect().Warm()
	key, err := p.A.EP.Unpack(long.Pack())
	require.NoError(t, err)
	defer key.Close()
	idle(p)
	e := p.A.W.Engine()
	e.ParkLimit = time.Hour
	var put *ucp.Request
	ready, err := e.ReadyToSleep(func() bool {
		if put == nil {
			var err error
			put, err = p.A.EP.Put(make([]byte, length), long.Addr(), key, nil)
			assert.NoError(t, err)
		}
		return false
	})
	require.NoError(t, err)
	require.False(t, put.Done())
	serveB(p)
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Watchdog)
	defer cancel()
	for ; err == nil && ctx.Err() == nil && !put.Done(); ready, err = e.ReadyToSleep(put.Done) {
		if ready {
			require.NoError(t, e.Park(ctx))
		}
		p.A.W.Progress()
	}
	require.NoError(t, err)
	require.NoError(t, ctx.Err(), "nothing has woken the sleeper")
	require.NoError(t, p.Finish(put, nil))
}

// TestGiveUp_Stopped: a process that was stopped until after the time limit checks again whether the transport has
// released the buffer, before the EP fails.
func TestGiveUp_Stopped(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.Connect().Warm()
	p.A.W.LimitBufferWait(time.Nanosecond)
	r, err := p.A.EP.Get(p.A.Mem.Bytes()[:4000], p.B.Mem.Addr(), p.A.Key, &ucp.OpParams{Mem: p.A.Mem})
	require.NoError(t, err)
	r.AbandonWith(func(ctx context.Context, _ func() bool) error {
		<-ctx.Done()
		return ctx.Err()
	})
	require.NoError(t, p.A.EP.Err())
	require.NoError(t, p.Flush())
}

// TestGiveUp_ProcessStood: time in which the process is stopped does not count. After that the transport has time to
// release the buffer.
func TestGiveUp_ProcessStood(t *testing.T) {
	p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.Connect().Warm()
	const stands = 3
	freeze := func(frozen bool) {
		for _, i := range f.Ifaces {
			i.Frozen = frozen
		}
	}
	freeze(true)
	const limit = 10 * time.Millisecond
	p.A.W.LimitBufferWait(limit)
	r, err := p.A.EP.Get(p.A.Mem.Bytes()[:4000], p.B.Mem.Addr(), p.A.Key, &ucp.OpParams{Mem: p.A.Mem})
	require.NoError(t, err)
	calls := 0
	r.AbandonWith(func(ctx context.Context, done func() bool) error {
		if calls++; calls > stands {
			freeze(false)
			return p.A.W.Engine().Until(context.Background(), done)
		}
		stood, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		<-stood.Done()
		<-ctx.Done()
		return ctx.Err()
	})
	assert.Equal(t, stands+1, calls)
	require.NoError(t, p.A.EP.Err())
	require.NoError(t, p.Flush())
}
