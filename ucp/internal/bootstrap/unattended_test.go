package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// unattended returns a listener without a socket and goroutines.
func unattended(t *testing.T, cfg Config) *listener {
	cfg.Stats = new(Stats)
	cfg.MaxHandshakes = cmp.Or(cfg.MaxHandshakes, 10)
	cfg.MaxPerSource = cfg.MaxHandshakes
	l := &Listener{cfg: cfg, lobby: newLobby(cfg.MaxHandshakes)}
	l.ctx, l.stop = context.WithCancel(context.Background())
	t.Cleanup(l.stop)
	return &listener{Listener: l, t: t}
}

// accepts is a socket whose Accept the test controls.
type accepts struct {
	net.Listener
	next func() (net.Conn, error)
}

func (a accepts) Accept() (net.Conn, error) { return a.next() }

// TestAcceptLoop_Pauses: while the process is out of descriptors, the loop retries after pauses that
// double up to a second. After a connection they start again with the shortest one.
func TestAcceptLoop_Pauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := unattended(t, Config{})
		here, there := net.Pipe()
		defer there.Close()
		go func() { _, _ = io.ReadAll(there) }()
		const works, calls = 11, 13
		var at []time.Time
		l.socket = accepts{next: func() (net.Conn, error) {
			at = append(at, time.Now())
			switch len(at) {
			case works:
				return here, nil
			case calls:
				l.stop()
			}
			return nil, syscall.EMFILE
		}}
		l.acceptLoop()
		var pauses []time.Duration
		for i := range at[1:] {
			pauses = append(pauses, at[i+1].Sub(at[i]))
		}
		const ms = time.Millisecond
		assert.Equal(t, []time.Duration{5 * ms, 10 * ms, 20 * ms, 40 * ms, 80 * ms, 160 * ms, 320 * ms, 640 * ms,
			time.Second, time.Second, 0, 5 * ms}, pauses)
	})
}

// TestAdmit_UnknownPeer: a connection whose peer cannot be identified is rejected and uses no place.
func TestAdmit_UnknownPeer(t *testing.T) {
	l := unattended(t, Config{})
	here, there := net.Pipe() // has no identity
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.admit(here)
	}()
	got, err := io.ReadAll(there)
	require.NoError(t, err)
	<-ended
	assert.Equal(t, rejection(CodeForeignUser, nil), got)
	assert.EqualValues(t, 1, l.cfg.Stats.foreign.Load())
	assert.Zero(t, l.occupied())
}

// TestExchange_UnknownPeer: a dialer sends no HELLO to a peer that it cannot identify.
func TestExchange_UnknownPeer(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	defer here.Close()
	require.NoError(t, here.SetDeadline(past)) // a write fails
	err := (&Conn{socket: here}).Exchange(t.Context(), sampleHello(), &DialConfig{})
	assert.ErrorIs(t, err, errors.ErrUnsupported)
}

// TestAwaitPlace: a connection waits until another one can be evicted, until a place becomes free, or
// until the listener is closed.
func TestAwaitPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const grace = time.Second
		l := unattended(t, Config{MaxHandshakes: 1, HelloTimeout: graceShare * grace})
		start := time.Now()
		elapsed := func() time.Duration { return time.Since(start) }
		first, second, third := l.request(from("10.0.0.1")), l.request(from("10.0.0.2")), l.request(from("10.0.0.3"))
		require.True(t, l.awaitPlace(first))
		assert.Zero(t, elapsed())
		require.True(t, l.awaitPlace(second))
		assert.Equal(t, grace, elapsed())
		assert.Error(t, first.ctx.Err(), "it was evicted")
		assert.EqualValues(t, 1, l.cfg.Stats.evicted.Load())

		second.stage = stageOwner // cannot be evicted
		time.AfterFunc(time.Minute, func() { second.remove() })
		require.True(t, l.awaitPlace(third))
		assert.Equal(t, grace+time.Minute, elapsed())
		assert.Equal(t, []*Request{third}, l.live)
		assert.EqualValues(t, 1, l.cfg.Stats.evicted.Load())

		third.stage = stageOwner
		time.AfterFunc(time.Minute, func() { l.replied(third) }) // can be evicted after the grace time
		require.True(t, l.awaitPlace(second))
		assert.Equal(t, 2*grace+2*time.Minute, elapsed())

		second.stage = stageOwner
		time.AfterFunc(time.Second, l.stop)
		assert.False(t, l.awaitPlace(l.request(from("10.0.0.4"))))
		assert.Equal(t, 2*grace+2*time.Minute+time.Second, elapsed())
		assert.False(t, l.awaitPlace(first), "closed before")
	})
}

// TestEnter_Deadline: a connection that has a place has HelloTimeout for its HELLO.
func TestEnter_Deadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := unattended(t, Config{HelloTimeout: time.Minute})
		start := time.Now()
		r := l.enterAt(from("10.0.0.1"), start)
		require.NotNil(t, r)
		assert.False(t, r.readHello())
		assert.Equal(t, time.Minute, time.Since(start))
		assert.EqualValues(t, 1, l.cfg.Stats.silent.Load())
	})
}

// TestReadHello_InterruptedOnlyDuringHello: the end of the context interrupts the read of the HELLO, but no later call, so
// that the last message to the dialer is not lost.
func TestReadHello_InterruptedOnlyDuringHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := unattended(t, Config{HelloTimeout: time.Minute})
		here, there := net.Pipe()
		defer here.Close()
		defer there.Close()
		r := newRequest(l.Listener, here, from("10.0.0.1"))
		go func() { _, _ = there.Write(sampleHello().append(nil)) }()
		require.True(t, r.readHello())
		assert.Equal(t, stageOwner, r.stage)
		r.cancel()
		synctest.Wait()
		assert.False(t, r.interrupted)

		r = newRequest(l.Listener, here, from("10.0.0.1"))
		time.AfterFunc(time.Second, r.cancel)
		require.False(t, r.readHello())
		assert.True(t, r.interrupted)
		assert.Zero(t, l.cfg.Stats.silent.Load(), "it was this side that ended it")
	})
}

// TestSend_DialerDoesNotRead: a dialer that does not read delays the listener by at most HelloTimeout, and not at all
// when the listener is closed.
func TestSend_DialerDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := unattended(t, Config{HelloTimeout: time.Minute})
		start := time.Now()
		assert.False(t, l.request(from("10.0.0.1")).send(doneMessage))
		assert.Equal(t, time.Minute, time.Since(start))
		time.AfterFunc(time.Second, l.stop)
		assert.False(t, l.request(from("10.0.0.1")).send(doneMessage))
		assert.Equal(t, time.Minute+time.Second, time.Since(start))
	})
}

// brokenConn is a connection whose deadline has passed and whose descriptor is closed.
type brokenConn struct{ net.Conn }

func (brokenConn) Read([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

func (brokenConn) SyscallConn() (syscall.RawConn, error) { return nil, net.ErrClosed }

// TestAfterDeadline: after the deadline, Read returns all bytes that have arrived, also one by one.
func TestAfterDeadline(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	there, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	defer there.Close()
	here, err := listener.Accept()
	require.NoError(t, err)
	defer here.Close()
	_, err = there.Write([]byte("ab"))
	require.NoError(t, err)
	awaitReadable(t, here)
	require.NoError(t, here.SetReadDeadline(past))
	b := make([]byte, 1)
	for _, want := range []string{"a", "b"} {
		n, err := afterDeadline{here}.Read(b)
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		assert.Equal(t, want, string(b))
	}
	pipe, other := net.Pipe()
	defer pipe.Close()
	defer other.Close()
	require.NoError(t, pipe.SetReadDeadline(past))
	for name, conn := range map[string]net.Conn{"nothing there": here, "no descriptor": pipe, "descriptor closed": brokenConn{}} {
		n, err := afterDeadline{conn}.Read(b)
		assert.Zero(t, n, name)
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded, name)
	}
	require.NoError(t, here.Close())
	_, err = afterDeadline{here}.Read(b)
	assert.ErrorIs(t, err, net.ErrClosed)
}

// TestConnect_BacklogFull: a dialer waits while the backlog of a unix socket is full, until its context ends.
func TestConnect_BacklogFull(t *testing.T) {
	name := abstractName()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: name}))
	require.NoError(t, unix.Listen(fd, 0))
	for {
		conn, err := net.Dial("unix", name)
		if err != nil {
			require.ErrorIs(t, err, syscall.EAGAIN)
			break
		}
		defer conn.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*backlogPause)
	defer cancel()
	_, err = Connect(ctx, "unix", name)
	require.Equal(t, context.DeadlineExceeded, err)

	connected := make(chan error, 1)
	go func() {
		c, err := Connect(t.Context(), "unix", name)
		if err == nil {
			err = c.Close()
		}
		connected <- err
	}()
	accepted, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
	require.NoError(t, err)
	defer unix.Close(accepted)
	assert.NoError(t, <-connected)
}
