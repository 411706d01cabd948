package ucxpeer

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
)

func openWorker(t *testing.T) *Worker {
	w, err := NewWorker(Config{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, w.Close()) })
	return w
}

// serve serves a worker in the background.
func serve(w *Worker) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = w.Serve(ctx) })
	return func() { cancel(); running.Wait() }
}

// eventLoop is an event loop that waits for the descriptor of a worker.
type eventLoop struct {
	t  *testing.T
	w  *Worker
	fd int
}

// ready makes progress and arms until the worker has no work. It reports whether done returned true before.
func (l *eventLoop) ready(done func() bool) bool {
	l.t.Helper()
	for start := time.Now(); time.Since(start) < testenv.Watchdog; {
		for l.w.Progress() > 0 {
		}
		if done() {
			return true
		}
		if err := l.w.Arm(); err == nil {
			return false
		} else {
			require.Equal(l.t, ucs.ErrBusy, err)
		}
	}
	require.FailNow(l.t, "busy for ever")
	return false
}

// until runs the loop until done returns true. Each wait must end with an event.
func (l *eventLoop) until(what string, done func() bool) {
	l.t.Helper()
	for !l.ready(done) {
		require.True(l.t, testenv.Readable(l.t, l.fd, testenv.Watchdog), "no event: %s", what)
	}
}

// quiet runs the loop until the descriptor is not readable for a while.
func (l *eventLoop) quiet() {
	l.t.Helper()
	for start := time.Now(); time.Since(start) < testenv.Watchdog; {
		l.ready(func() bool { return false })
		if !testenv.Readable(l.t, l.fd, 20*time.Millisecond) {
			return
		}
	}
	require.FailNow(l.t, "the descriptor is readable again and again")
}

// TestArm_Events: each type of event makes the descriptor of an idle worker readable, and nothing else does.
func TestArm_Events(t *testing.T) {
	w, other := openWorker(t), openWorker(t)
	fd, err := w.FD()
	require.NoError(t, err)
	l := &eventLoop{t, w, fd}
	l.quiet()

	// A connection and a message.
	ep, err := other.NewEP(w.Address(), EPConfig{PeerErrors: true})
	require.NoError(t, err)
	buf := make([]byte, 1<<20)
	recv, err := w.TagRecv(buf, 1, ^uint64(0), nil, nil)
	require.NoError(t, err)
	_, err = ep.TagSend(1, make([]byte, len(buf)), nil) // a rendezvous
	require.NoError(t, err)
	stop := serve(other)
	l.until("message", recv.Done)
	require.NoError(t, recv.Err())
	l.quiet()

	// A completion: the peer matches the message.
	back, err := w.NewEP(other.Address(), EPConfig{PeerErrors: true})
	require.NoError(t, err)
	sent, err := back.TagSendSync(2, []byte("x"), nil)
	require.NoError(t, err)
	l.quiet()
	require.False(t, sent.Done())
	stop()
	_, err = other.TagRecv(make([]byte, 1), 2, ^uint64(0), nil, nil)
	require.NoError(t, err)
	stop = serve(other)
	l.until("completion", sent.Done)
	l.quiet()

	// A client of a listener.
	var accepted *EP
	listener, err := w.Listen(t.Context(), "tcp", "127.0.0.1:0", ListenConfig{OnConnect: func(e *EP) { accepted = e }})
	require.NoError(t, err)
	l.quiet()
	stop()
	dialed := make(chan error)
	go func() {
		_, err := other.Dial(context.Background(), "tcp", listener.Addr().String(), DialConfig{})
		dialed <- err
	}()
	l.until("client", func() bool { return accepted != nil })
	require.NoError(t, <-dialed)
	stop = serve(other)
	l.quiet()

	// Another goroutine.
	w.Signal()
	require.True(t, testenv.Readable(t, fd, 0))
	l.quiet()

	// The end of the peer.
	stop()
	require.NoError(t, other.Close())
	l.until("end of the peer", func() bool { return back.Err() != nil && accepted.Err() != nil })
	require.NoError(t, listener.Close())
	l.quiet()

	require.NoError(t, w.Close())
	assert.ErrorIs(t, w.Arm(), ucs.ErrClosed)
	_, err = w.FD()
	assert.ErrorIs(t, err, ucs.ErrClosed)
}

// TestServe_Sleeps: an idle worker sleeps in the kernel until the next event.
func TestServe_Sleeps(t *testing.T) {
	w, other := openWorker(t), openWorker(t)
	w.engine.ParkLimit = time.Hour
	ep, err := other.NewEP(w.Address(), EPConfig{PeerErrors: true})
	require.NoError(t, err)
	received := make(chan struct{}, 1)
	w.OnActive(1, func(*ActiveMessage) { received <- struct{}{} })
	stop, stopOther := serve(w), serve(other)
	before, last, looks := uint64(0), uint64(0), 0
	asleep := func() bool { // in the same sleep at each of many checks
		if now := w.engine.Sleeps.Load(); now != last {
			last, looks = now, 0
		}
		looks++
		return last > before && looks > 500
	}
	testenv.ProgressWithin(t, testenv.Watchdog, asleep)
	before, looks = last, 0
	stopOther()
	_, err = ep.SendActive(1, nil, []byte("wake up"), nil)
	require.NoError(t, err)
	stopOther = serve(other)
	<-received
	testenv.ProgressWithin(t, testenv.Watchdog, asleep)
	stop()
	stopOther()
}
