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
	"github.com/gucx/gucx/ucp/internal/engine"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// serve starts a goroutine that makes progress on b until the test ends. If b and a are one worker, it makes its own
// progress.
func (p *pair) serve() {
	if p.oneself() {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = p.b.w.Serve(ctx) })
	p.t.Cleanup(func() {
		cancel()
		p.b.w.Signal()
		wg.Wait()
	})
}

func TestBlockingForms(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect()
		p.serve()
		ctx := context.Background()
		ep, key, addr := p.a.ep, p.a.key, p.b.mem.Addr()
		require.NoError(t, ep.PutWait(ctx, pattern(5000, 2), addr+64, key, nil))
		require.NoError(t, ep.FlushWait(ctx))
		got := make([]byte, 5000)
		require.NoError(t, ep.GetWait(ctx, got, addr+64, key, nil))
		requireBytes(t, pattern(5000, 2), got)
		old, err := ep.AtomicFetchWait(ctx, uct.AtomicAdd, 8, 5, addr, key)
		require.NoError(t, err)
		assert.Equal(t, uint64(0), old)
		old, err = ep.AtomicCSwapWait(ctx, 8, 5, 9, addr, key)
		require.NoError(t, err)
		assert.Equal(t, uint64(5), old)
		require.NoError(t, p.a.w.FlushWait(ctx))
		require.NoError(t, ep.CloseWait(ctx, CloseFlush))
	})
}

// TestWait_Parks: an idle waiter sleeps, and the transport wakes it.
func TestWait_Parks(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.a.w.engine.Spin.Fixed = engine.YieldPolls
	p.b.w.engine.Spin.Fixed = engine.YieldPolls
	p.connect()
	r, err := p.a.ep.Put([]byte{1}, p.b.mem.Addr(), p.a.key, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	waited, before := make(chan error), counters(p.a.w)["worker.sleeps"]
	go func() { waited <- r.Wait(ctx) }()
	testenv.ProgressWithin(t, patience, func() bool { return counters(p.a.w)["worker.sleeps"] > before })
	cancel()
	assert.ErrorIs(t, <-waited, context.Canceled, "the peer makes no progress")

	p.serve()
	require.NoError(t, r.Wait(context.Background()))
	require.NoError(t, p.a.ep.FlushWait(context.Background()))
}

func TestWait_Canceled(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.connect()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	got := []byte{42}
	assert.ErrorIs(t, p.a.ep.GetWait(ctx, got, p.b.mem.Addr(), p.a.key, nil), context.Canceled)
	r, err := p.a.ep.Put([]byte{1}, p.b.mem.Addr(), p.a.key, nil)
	require.NoError(t, err)
	assert.ErrorIs(t, p.a.ep.FlushWait(ctx), context.Canceled)
	require.NoError(t, p.finish(r, nil))
	require.NoError(t, p.flush())
	assert.Equal(t, []byte{42}, got, "the canceled get does not write")
}

// TestWait_CancelWakesTheSleeper: a context that is canceled wakes the waiter.
func TestWait_CancelWakesTheSleeper(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.a.w.engine.Spin.Fixed = engine.YieldPolls
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- p.a.w.Serve(ctx) }()
	cancel()
	assert.ErrorIs(t, <-done, context.Canceled)
}

func TestSignal_BeforeAnySleep(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeSM())
	assert.NotPanics(t, p.a.w.Signal)
}

func TestRequest_TestAndCancel(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.connect()
	waiting, err := p.a.ep.Put([]byte{1}, p.b.mem.Addr(), p.a.key, nil)
	require.NoError(t, err)
	second, err := p.a.ep.Put([]byte{2}, p.b.mem.Addr()+1, p.a.key, nil)
	require.NoError(t, err)
	assert.Equal(t, ucs.StatusInProgress, waiting.Status())
	assert.True(t, waiting.Cancel())
	assert.False(t, waiting.Cancel(), "once")
	done, err := waiting.Test()
	assert.True(t, done)
	assert.ErrorIs(t, err, ucs.ErrCanceled)
	p.until(func() bool {
		done, err = second.Test()
		return done
	})
	assert.NoError(t, err)
	require.NoError(t, p.flush())
	assert.Equal(t, []byte{0, 2}, p.b.mem.Bytes()[:2])

	// In the queue of a lane, after posted operations.
	var reqs []*Request
	for i := range 20 {
		r, err := p.a.ep.Put(pattern(100, 1), p.b.mem.Addr()+uint64(100*i), p.a.key, nil)
		require.NoError(t, err)
		if r != nil {
			reqs = append(reqs, r)
		}
	}
	last := reqs[len(reqs)-1]
	assert.True(t, last.Cancel())
	last.Release()
	assert.False(t, func() bool { r, _ := p.a.ep.Flush(); defer r.Release(); return r.Cancel() }(), "a flush")
	for _, r := range reqs[:len(reqs)-1] {
		require.NoError(t, p.finish(r, nil))
	}
	require.NoError(t, p.flush())
	assert.Zero(t, p.b.mem.Bytes()[1900], "the last one was not posted")
}

// TestWait_NoWakeUpIsLost: both sides sleep at each step, without a timeout.
func TestWait_NoWakeUpIsLost(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		for _, w := range []*Worker{p.a.w, p.b.w} {
			w.engine.Spin.Fixed, w.engine.ParkLimit = engine.YieldPolls, time.Hour
		}
		p.connect()
		p.serve()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		ep, key, addr := p.a.ep, p.a.key, p.b.mem.Addr()
		for i := range 30 {
			want := pattern(3000*(1+i%5), i)
			require.NoError(t, ep.PutWait(ctx, want, addr+64, key, nil))
			require.NoError(t, ep.FlushWait(ctx))
			got := make([]byte, len(want))
			require.NoError(t, ep.GetWait(ctx, got, addr+64, key, nil))
			requireBytes(t, want, got)
			old, err := ep.AtomicFetchWait(ctx, uct.AtomicAdd, 4, 1, addr, key)
			require.NoError(t, err)
			assert.Equal(t, uint64(i), old)
		}
		require.NoError(t, ep.CloseWait(ctx, CloseFlush))
	})
}

// TestGiveUp: after a canceled call the caller may use the buffer. Later messages are received.
func TestGiveUp(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect()
		w := p.b.w
		given, buf := make([]byte, 8), make([]byte, 8)
		r, err := w.TagRecv(given, 1, exact, nil, nil)
		require.NoError(t, err)
		r.GiveUp()
		sent := p.tagSend(1, pattern(8, 5))
		p.unexpected(1)
		found := false
		require.NoError(t, w.Until(t.Context(), func() bool {
			_, _, found = w.TagProbe(1, exact, false)
			return found
		}))
		require.NoError(t, p.finish(w.TagRecv(buf, 1, exact, nil, nil)))
		require.NoError(t, p.finish(sent, nil))
		requireBytes(t, pattern(8, 5), buf)
		requireBytes(t, make([]byte, 8), given)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, w.Until(ctx, never), context.Canceled)
		last, err := w.TagRecv(buf, 2, exact, nil, nil)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		last.GiveUp()
		require.ErrorIs(t, w.Until(t.Context(), never), ucs.ErrClosed)
	})
}

// TestFlushWait_FullLane: a flush that waits for resources of the lane needs no request.
func TestFlushWait_FullLane(t *testing.T) {
	for _, tls := range []string{`\rc`, "rc_mlx5"} {
		t.Run(tls, func(t *testing.T) {
			p := newPair(t, tlsets.Real(tls, tls), Config{})
			p.connect().warm()
			w, x := p.a.w, p.a.ep.lane(wireup.RMA)
			err := error(nil)
			for err == nil {
				err = x.Put.PutShort([]byte{1}, p.b.mem.Addr(), p.a.key.rma)
			}
			_, err = x.EP.Flush(nil)
			require.Equal(t, uct.ErrNoResource, err)
			free, requests := w.pool.free, w.pool.made
			w.pool.free = nil
			require.NoError(t, p.a.ep.FlushWait(t.Context()))
			assert.Equal(t, requests, w.pool.made, "no request was allocated")
			w.pool.free = free
		})
	}
}

// untilDrained waits with until for a value of a channel, once for each number of calls of done before the value is
// sent: so done returns true in each of the places that call it.
func untilDrained(t *testing.T, until untilFunc, calls int) {
	t.Helper()
	for at := range calls {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
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
	p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	e := &p.a.w.engine
	e.Spin.Fixed, e.ParkLimit = engine.YieldPolls, time.Millisecond
	untilDrained(t, p.a.w.Until, 3*engine.YieldPolls)
	untilDrained(t, p.a.w.Share().Until, 3*engine.YieldPolls)
}

// TestUntil_DrainsAChannelWhileAnotherDrives: the goroutine that makes progress calls the done of a goroutine that
// sleeps.
func TestUntil_DrainsAChannelWhileAnotherDrives(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	e := &p.a.w.engine
	e.Spin.Fixed, e.ParkLimit = engine.YieldPolls, time.Millisecond
	s := p.a.w.Share()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(ctx) })
	testenv.ProgressWithin(t, patience, s.driven.Load)
	untilDrained(t, s.Until, 10)
	cancel()
	p.a.w.Signal()
	wg.Wait()
}

// TestSleep_DoneStartsOperations: operations that the function of Until starts just before the sleep do not wait for
// its end, before and after they have a lane.
func TestSleep_DoneStartsOperations(t *testing.T) {
	p := newPair(t, tlsets.Real("self", "self"), Config{})
	p.a.dial(t, &p.a)
	for range 2 { // the first time there is no lane
		p.idle()
		started := false
		ready, err := p.a.w.engine.ReadyToSleep(func() bool {
			if !started {
				started = true
				assert.NoError(t, releaseRequest(p.a.ep.TagSend(1, []byte{1}, nil)))
			}
			return false
		})
		require.NoError(t, err)
		require.True(t, started)
		require.False(t, ready)
		require.NoError(t, p.finish(p.a.w.TagRecv(make([]byte, 1), 1, exact, nil, nil)))
	}
}

// TestSleep_AlarmBeforeTheFirst: an alarm that fires before the first sleep does not wait for the end of the sleep.
func TestSleep_AlarmBeforeTheFirst(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	e := &p.a.w.engine
	e.Alarm.Set(e.Alarm.Now())
	testenv.ProgressWithin(t, patience, e.Alarm.Due)
	e.Ticks = engine.IdleTicks
	ready, err := e.ReadyToSleep(never)
	require.NoError(t, err)
	assert.False(t, ready)
}

// TestSleep_DoneFillsTheSocket: operations that the function of Until starts just before the sleep fill the socket. The
// sleeper wakes when it is writable again.
func TestSleep_DoneFillsTheSocket(t *testing.T) {
	p := newPair(t, tlsets.Real("tcp", "tcp"), Config{})
	const length = 64 << 20
	long, err := p.b.ctx.MemAlloc(length)
	require.NoError(t, err)
	defer func() { require.NoError(t, long.Close()) }()
	p.connect().warm()
	key, err := p.a.ep.Unpack(long.Pack())
	require.NoError(t, err)
	defer key.Close()
	p.idle()
	e := &p.a.w.engine
	e.ParkLimit = time.Hour
	var put *Request
	ready, err := e.ReadyToSleep(func() bool {
		if put == nil {
			var err error
			put, err = p.a.ep.Put(make([]byte, length), long.Addr(), key, nil)
			assert.NoError(t, err)
		}
		return false
	})
	require.NoError(t, err)
	require.False(t, put.Done())
	p.serve()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for ; err == nil && ctx.Err() == nil && !put.Done(); ready, err = e.ReadyToSleep(put.Done) {
		if ready {
			require.NoError(t, e.Park(ctx))
		}
		p.a.w.Progress()
	}
	require.NoError(t, err)
	require.NoError(t, ctx.Err(), "nothing has woken the sleeper")
	require.NoError(t, p.finish(put, nil))
}

// TestGiveUp_Stopped: a process that was stopped until after the time limit checks again whether the transport has
// released the buffer, before the EP fails.
func TestGiveUp_Stopped(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.connect().warm()
	p.a.w.bufferWaitLimit = time.Nanosecond
	r, err := p.a.ep.Get(p.a.mem.Bytes()[:4000], p.b.mem.Addr(), p.a.key, &OpParams{Mem: p.a.mem})
	require.NoError(t, err)
	r.giveUp(func(ctx context.Context, _ func() bool) error {
		<-ctx.Done()
		return ctx.Err()
	})
	require.NoError(t, p.a.ep.Err())
	require.NoError(t, p.flush())
}

// TestGiveUp_ProcessStood: time in which the process is stopped does not count. After that the transport has time to
// release the buffer.
func TestGiveUp_ProcessStood(t *testing.T) {
	p, f := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.connect().warm()
	const stands = 3
	freeze := func(frozen bool) {
		for _, i := range f.Ifaces {
			i.Frozen = frozen
		}
	}
	freeze(true)
	p.a.w.bufferWaitLimit = 10 * time.Millisecond
	r, err := p.a.ep.Get(p.a.mem.Bytes()[:4000], p.b.mem.Addr(), p.a.key, &OpParams{Mem: p.a.mem})
	require.NoError(t, err)
	calls := 0
	r.giveUp(func(ctx context.Context, done func() bool) error {
		if calls++; calls > stands {
			freeze(false)
			return p.a.w.engine.Until(context.Background(), done)
		}
		stood, cancel := context.WithTimeout(context.Background(), p.a.w.bufferWaitLimit)
		defer cancel()
		<-stood.Done()
		<-ctx.Done()
		return ctx.Err()
	})
	assert.Equal(t, stands+1, calls)
	require.NoError(t, p.a.ep.Err())
	require.NoError(t, p.flush())
}
