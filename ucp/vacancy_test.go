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
	"github.com/gucx/gucx/ucs"
)

// service is a SharedWorker of a that never sleeps, with a goroutine in Serve, and b, which sends messages to it.
type service struct {
	*ucppair.Pair
	s      *ucp.SharedWorker
	served chan error // what Serve has returned
	stop   context.CancelFunc
}

func newService(t *testing.T, set tlsets.Set) *service {
	p := ucppair.New(t, set, ucp.Config{})
	p.Both().Warm()
	p.A.W.Engine().Spin.Fixed = -1
	ctx, stop := context.WithCancel(context.Background())
	x := &service{Pair: p, s: p.A.W.Share(), served: make(chan error, 1), stop: stop}
	go func() { x.served <- x.s.Serve(ctx) }()
	t.Cleanup(stop)
	return x
}

// send sends a message of b.
func (x *service) send(tag uint64) {
	x.T.Helper()
	r, err := x.B.EP.TagSend(tag, []byte{byte(tag)}, nil)
	require.NoError(x.T, err)
	testenv.ProgressWithin(x.T, testenv.Watchdog, func() bool { x.B.W.Progress(); return r == nil || r.Done() })
	if r != nil {
		require.NoError(x.T, r.Take())
	}
}

// receive starts a goroutine that waits for a message.
func (x *service) receive(ctx context.Context, tag uint64) (received chan error) {
	received = make(chan error, 1)
	go func() {
		received <- x.s.Run(ctx, func() (*ucp.Request, error) { return x.A.W.TagRecv(make([]byte, 1), tag, exact, nil, nil) })
	}()
	return received
}

// within makes progress on b until something comes.
func (x *service) within(c chan error) (err error) {
	x.T.Helper()
	testenv.ProgressWithin(x.T, testenv.Watchdog, func() bool {
		x.B.W.Progress()
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
	x.T.Helper()
	testenv.ProgressWithin(x.T, testenv.Watchdog, func() bool {
		return x.s.Driven() && x.s.Blocked() == n
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
			var r *ucp.Request
			x.s.Do(func(w *ucp.Worker) {
				var err error
				r, err = w.TagRecv(make([]byte, 1), 2, exact, nil, nil)
				require.NoError(t, err)
			})
			x.send(2)
			done := func() (d bool) { x.s.Do(func(*ucp.Worker) { d = r.Done() }); return d }
			testenv.ProgressWithin(t, testenv.Watchdog, func() bool { x.B.W.Progress(); return done() })
			x.s.Do(func(*ucp.Worker) { require.NoError(t, r.Take()) })
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

// begun returns the number of vacancies.
func (x *service) begun() (n uint) {
	x.s.Do(func(*ucp.Worker) { n = x.s.Vacancies() })
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
	for range ucp.ResignAfter {
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
// replied to the previous ones, and messages are not rare.
func TestVacancy_Slept(t *testing.T) {
	x := newService(t, faketp.Set("like rc", faketp.LikeRC(), faketp.LikeUD()))
	x.s.Do(func(w *ucp.Worker) { w.Engine().Spin.Fixed = 1 })
	t.Cleanup(func() { x.s.Do(func(*ucp.Worker) { x.s.StopTimer() }) })
	one := func(replies bool) {
		if replies {
			n, err := x.s.StreamSend(t.Context(), x.A.EP, []byte{1})
			require.NoError(t, err)
			require.Equal(t, 1, n)
		}
		received := make(chan error, 1)
		go func() { _, err := x.s.StreamRecv(t.Context(), x.A.EP, make([]byte, 1)); received <- err }()
		untilParked(t, x.s, 2)
		require.NoError(t, x.sendBytes(2))
		require.NoError(t, x.within(received))
		// The second byte is received at once, which is neither a reply nor a wait.
		n, err := x.s.StreamRecv(t.Context(), x.A.EP, make([]byte, 1))
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	for range 10 {
		x.s.Do(func(*ucp.Worker) { x.s.ForgetLatest() })
		one(true)
	}
	assert.Zero(t, x.begun(), "rare")
	x.s.Do(func(*ucp.Worker) { x.s.StartTimer(time.Hour) })
	for range 10 {
		one(false)
	}
	assert.Zero(t, x.begun(), "no reply")
	for range ucp.RepliesSeen - 1 {
		one(true)
		assert.Zero(t, x.begun(), "few replies")
	}
	for n := range uint(10) {
		one(true)
		assert.Equal(t, n+1, x.begun())
	}
	x.s.Do(func(*ucp.Worker) { x.s.StopTimer() })
	x.stop()
	require.ErrorIs(t, x.within(x.served), context.Canceled)
}

// TestVacancy_AnotherWrites: if one goroutine reads a stream and another one writes to it, no vacancy begins, also if the driver does
// not sleep.
func TestVacancy_AnotherWrites(t *testing.T) {
	x := newService(t, faketp.Set("like rc", faketp.LikeRC(), faketp.LikeUD()))
	for range 2 * ucp.RepliesSeen {
		received := make(chan error, 1)
		go func() { _, err := x.s.StreamRecv(t.Context(), x.A.EP, make([]byte, 1)); received <- err }()
		x.blocked(1)
		_, err := x.s.StreamSend(t.Context(), x.A.EP, []byte{1})
		require.NoError(t, err)
		require.NoError(t, x.sendBytes(1))
		require.NoError(t, x.within(received))
	}
	assert.Zero(t, x.begun())
	x.stop()
	require.ErrorIs(t, x.within(x.served), context.Canceled)
}

// TestVacancy_Replies: a service that writes once or twice for each message, to one stream or to several, replies. One in which another
// goroutine writes does not, although that one is sometimes faster than the reader.
func TestVacancy_Replies(t *testing.T) {
	for _, tc := range []struct{ streams, writes int }{{1, 1}, {1, 2}, {16, 1}} {
		var r ucp.Replies
		row := 0
		for range 100 {
			for range tc.streams * tc.writes {
				r.Sent(false)
			}
			for range tc.streams {
				row = r.Wait()
			}
		}
		assert.Equal(t, ucp.RepliesSeen, row, "%+v", tc)
	}
	var r ucp.Replies
	for i := range 100 {
		require.Less(t, r.Wait(), ucp.RepliesAssumed)
		r.Sent(true)
		if i%2 == 0 {
			r.Sent(false)
		}
	}
}

// sendBytes sends n bytes on the stream of b.
func (x *service) sendBytes(n int) error {
	r, err := x.B.EP.StreamSend(make([]byte, n), nil)
	if r == nil {
		return err
	}
	testenv.ProgressWithin(x.T, testenv.Watchdog, func() bool { x.B.W.Progress(); return r.Done() })
	return r.Take()
}

// TestVacancy_ManyTakeTurns: goroutines that receive in turns all receive.
func TestVacancy_ManyTakeTurns(t *testing.T) {
	x := newService(t, faketp.Set("like rc", faketp.LikeRC(), faketp.LikeUD()))
	var running sync.WaitGroup
	for k := range uint64(sharers) {
		running.Go(func() {
			for range 50 {
				err := x.s.Run(t.Context(), func() (*ucp.Request, error) {
					return x.A.W.TagRecv(make([]byte, 1), k, exact, nil, nil)
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
