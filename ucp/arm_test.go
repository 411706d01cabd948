package ucp_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/roles"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// messagesOnly is a transport without put.
const messagesOnly = "ud_mlx5"

// armSets are the transports over which workers are armed.
func armSets() []string {
	sets := []string{"sm", "tcp", "rc_mlx5", messagesOnly, "all"}
	if testenv.Sweep() {
		sets = append(sets, `\rc`, `\ud`, `\xrc`, "xrc_mlx5")
	}
	return sets
}

// eventLoop is a loop of the application that waits for the descriptor of a worker.
type eventLoop struct {
	t     testing.TB
	w     *ucp.Worker
	fd    int
	waits int // waits for the descriptor
}

func newEventLoop(t testing.TB, w *ucp.Worker) *eventLoop {
	t.Helper()
	fd, err := w.FD()
	require.NoError(t, err)
	return &eventLoop{t: t, w: w, fd: fd}
}

// progress makes progress and arms until the worker has nothing to do. It reports whether done returned true before.
func (l *eventLoop) progress(done func() bool) bool {
	l.t.Helper()
	for start := time.Now(); time.Since(start) < testenv.Watchdog; {
		for l.w.Progress() > 0 {
		}
		if done() {
			return true
		}
		err := l.w.Arm()
		if err == nil {
			return false
		}
		require.Equal(l.t, ucs.ErrBusy, err)
	}
	require.FailNow(l.t, "the worker is always busy", l.w.State())
	return false
}

// until runs the loop until done returns true. Each wait must end with an event.
func (l *eventLoop) until(done func() bool) {
	l.t.Helper()
	for !l.progress(done) {
		l.waits++
		if !testenv.Readable(l.t, l.fd, testenv.Watchdog) {
			require.FailNow(l.t, "no event", l.w.State())
		}
	}
}

// requireQuiet runs the loop until the descriptor is not readable for a while.
func (l *eventLoop) requireQuiet() {
	l.t.Helper()
	for start := time.Now(); time.Since(start) < testenv.Watchdog; {
		l.progress(func() bool { return false })
		if !testenv.Readable(l.t, l.fd, 50*time.Millisecond) {
			return
		}
	}
	require.FailNow(l.t, "the descriptor does not stop being readable", l.w.State())
}

// TestArm_Idle: the descriptor of an armed worker is not readable while there are no events, whatever its peers did
// before.
func TestArm_Idle(t *testing.T) {
	for _, tls := range idleSets {
		t.Run(tls, func(t *testing.T) {
			newEventLoop(t, newIdleWorld(t, tls, 1).w).requireQuiet()
		})
	}
}

// TestArm_Events: each type of event makes the descriptor of an idle worker readable.
func TestArm_Events(t *testing.T) {
	for _, tls := range armSets() {
		t.Run(tls, func(t *testing.T) {
			x := openIdleWorld(t, ucppair.FromEnv(t, "TLS="+tls))
			l := newEventLoop(t, x.w)
			l.requireQuiet()
			connects(t, x, l, tls != messagesOnly)
			l.requireQuiet()
			signals(t, x, l)
			l.requireQuiet()
			inspects(t, x, l)
			l.requireQuiet()
			dials(t, x, l)
			timesOut(t, tls)
		})
	}
}

// connects makes another worker connect, send and close its EP; the worker puts to it.
func connects(t *testing.T, x *idleWorld, l *eventLoop, puts bool) {
	var from *ucp.EP
	received, other := 0, x.newWorker(t)
	x.w.OnActive(7, func(m *ucp.ActiveMessage) { from = m.From; received++ })
	ep, err := other.NewEP(x.w.Address(), ucp.EPConfig{})
	require.NoError(t, err)
	send := func() {
		r, err := ep.SendActive(7, nil, make([]byte, 100), nil)
		require.NoError(t, err)
		r.Release()
	}
	send()
	stop := background(1, other.Serve)
	l.until(func() bool { return received == 1 })
	l.requireQuiet()
	require.NoError(t, other.Inspect(t.Context(), func(*ucp.Worker) { send() }))
	l.until(func() bool { return received == 2 })
	l.requireQuiet()

	if puts {
		putAndFlush(t, x, l, from)
	}
	var closed atomic.Bool
	require.NoError(t, other.Inspect(t.Context(), func(*ucp.Worker) {
		_, err = ep.Close(ucp.CloseFlush)
		closed.Store(true)
	}))
	require.NoError(t, err)
	l.until(func() bool { return closed.Load() && from.Err() != nil })
	stop()
}

// putAndFlush puts a byte into the memory of the world.
func putAndFlush(t *testing.T, x *idleWorld, l *eventLoop, ep *ucp.EP) {
	key, err := ep.Unpack(x.mem.Pack())
	require.NoError(t, err)
	defer key.Close()
	r, err := ep.Put([]byte{3}, key.Addr(), key, nil)
	require.NoError(t, err)
	l.until(r.Done)
	require.True(t, r == nil || r.Take() == nil)
	flushed, err := ep.Flush()
	require.NoError(t, err)
	l.until(flushed.Done)
	flushed.Release()
	l.requireQuiet()
}

func signals(t *testing.T, x *idleWorld, l *eventLoop) {
	var set atomic.Bool
	go func() { set.Store(true); x.w.Signal() }()
	l.until(set.Load)
}

func inspects(t *testing.T, x *idleWorld, l *eventLoop) {
	ran := make(chan error, 1)
	done := false
	go func() { ran <- x.w.Inspect(context.Background(), func(*ucp.Worker) { done = true }) }()
	l.until(func() bool { return done })
	require.NoError(t, <-ran)
}

// timesOut connects to a worker that makes no progress.
func timesOut(t *testing.T, tls string) {
	cfg := ucppair.FromEnv(t, "TLS="+tls)
	cfg.WireupTimeout = 20 * time.Millisecond
	x := openIdleWorld(t, cfg)
	ep, err := x.w.NewEP(x.newWorker(t).Address(), ucp.EPConfig{})
	require.NoError(t, err)
	r, err := ep.SendActive(1, nil, nil, nil)
	require.NoError(t, err)
	newEventLoop(t, x.w).until(r.Done)
	require.ErrorIs(t, r.Take(), ucs.ErrTimedOut)
}

// dials makes another worker dial.
func dials(t *testing.T, x *idleWorld, l *eventLoop) {
	peers := 0
	listener, err := x.w.Listen(t.Context(), "unix", "@gucx-arm-"+fmt.Sprint(time.Now().UnixNano()), ucp.ListenConfig{
		OnPeer: func(*ucp.Peer) { peers++ },
	})
	require.NoError(t, err)
	l.requireQuiet()
	other := x.newWorker(t)
	dialed := make(chan error, 1)
	go func() {
		_, err := other.Dial(context.Background(), "unix", listener.Addr().String(), ucp.DialConfig{})
		dialed <- err
		x.w.Signal()
	}()
	l.until(func() bool { return peers == 1 && len(dialed) == 1 })
	require.NoError(t, <-dialed)
	require.NoError(t, listener.Close())
}

// TestArm_PeerDies: the death of a peer makes the descriptor readable.
func TestArm_PeerDies(t *testing.T) {
	for _, tls := range tlsets.ProcessSets() {
		t.Run(tls, func(t *testing.T) {
			x := openIdleWorld(t, ucppair.FromEnv(t, "TLS="+tls))
			l := newEventLoop(t, x.w)
			var from *ucp.EP
			x.w.OnActive(tlsets.SleeperID, func(m *ucp.ActiveMessage) { from = m.From })
			c := roles.Start(t, "sleeper", tls, fmt.Sprintf("%x", x.w.Address()))
			l.until(func() bool { return from != nil })
			l.requireQuiet()
			c.Kill(t)
			l.until(func() bool { return from.Err() != nil })
		})
	}
}

// TestArm_LosesNoEvent: a reply or a signal that arrives before, during or after Arm ends the wait.
func TestArm_LosesNoEvent(t *testing.T) {
	rounds := testenv.Rounds(100, 100_000)
	for _, tls := range armSets() {
		t.Run(tls, func(t *testing.T) {
			x := openIdleWorld(t, ucppair.FromEnv(t, "TLS="+tls))
			l := newEventLoop(t, x.w)
			other := x.newWorker(t)
			spins := 0
			other.OnActive(1, func(m *ucp.ActiveMessage) {
				spins = (spins*13 + 7) % 4099
				for i := 0; i < spins; i++ {
					_ = other.Closed() // up to some microseconds, which differ each time
				}
				r, err := m.From.SendActive(2, nil, nil, nil)
				assert.NoError(t, err)
				r.Release()
			})
			replies := 0
			x.w.OnActive(2, func(*ucp.ActiveMessage) { replies++ })
			stop := background(1, other.Serve)
			ep, err := x.w.NewEP(other.Address(), ucp.EPConfig{})
			require.NoError(t, err)
			var signals atomic.Int64
			for i := range rounds {
				r, err := ep.SendActive(1, nil, nil, nil)
				require.NoError(t, err)
				r.Release()
				l.until(func() bool { return replies == i+1 })
				if i%4 == 0 {
					go func() { signals.Add(1); x.w.Signal() }()
					l.until(func() bool { return signals.Load() == int64(i/4+1) })
				}
			}
			stop()
			require.Positive(t, l.waits)
		})
	}
}

// TestArm_Errors: a worker that is closed or shared has no descriptor.
func TestArm_Errors(t *testing.T) {
	x := openIdleWorld(t, ucppair.FromEnv(t, "TLS=self"))
	w := x.newWorker(t)
	require.NoError(t, w.Close())
	require.ErrorIs(t, w.Arm(), ucs.ErrClosed)
	_, err := w.FD()
	require.ErrorIs(t, err, ucs.ErrClosed)

	w = x.newWorker(t)
	w.Share()
	require.ErrorIs(t, w.Arm(), ucs.ErrInvalidState)
	_, err = w.FD()
	require.ErrorIs(t, err, ucs.ErrInvalidState)
}

// TestArm_RunsNoCallback: Arm reports arrivals and leaves them to Progress.
func TestArm_RunsNoCallback(t *testing.T) {
	for _, tls := range []string{"self", "sm", "tcp", "rc_mlx5"} {
		t.Run(tls, func(t *testing.T) {
			x := newIdleWorld(t, tls, 1)
			l := newEventLoop(t, x.w)
			l.requireQuiet()
			from := x.w
			if tls != "self" {
				from = x.peers[0]
			}
			received := 0
			x.w.OnActive(9, func(*ucp.ActiveMessage) { received++ })
			ep, err := from.NewEP(x.w.Address(), ucp.EPConfig{})
			require.NoError(t, err)
			r, err := ep.SendActive(9, nil, nil, nil)
			require.NoError(t, err)
			r.Release()
			for start := time.Now(); received == 0; {
				require.Less(t, time.Since(start), testenv.Watchdog)
				if from != x.w {
					from.Progress()
				}
				before := received
				_ = x.w.Arm()
				require.Equal(t, before, received)
				x.w.Progress()
			}
		})
	}
}

// TestArm_Allocs: an armed loop does not allocate.
func TestArm_Allocs(t *testing.T) {
	x := newIdleWorld(t, "sm", 1)
	l := newEventLoop(t, x.w)
	l.requireQuiet()
	testenv.NoAllocs(t, "arm", func() { _ = x.w.Arm() })
}
