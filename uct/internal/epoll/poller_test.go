package epoll

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// watcher counts its calls and runs do.
type watcher struct {
	calls  int
	events uint32
	do     func()
}

func (w *watcher) Ready(events uint32) int {
	w.calls++
	w.events = events
	if w.do != nil {
		w.do()
	}
	return 1
}

// newPoller opens a poller, which is closed when the test ends.
func newPoller(t *testing.T, onTick Watcher) *Poller {
	t.Helper()
	p := new(Poller)
	var undo cleanup.Stack
	t.Cleanup(func() { assert.NoError(t, undo.Run()) })
	require.NoError(t, p.Open(onTick, &undo))
	undo.Add(p.CloseAll)
	return p
}

// pair returns a pair of connected sockets. The test closes the second one.
func pair(t *testing.T) (a, b int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fds[1]) })
	return fds[0], fds[1]
}

func write(t *testing.T, fd int) {
	t.Helper()
	_, err := unix.Write(fd, []byte{1})
	require.NoError(t, err)
}

func TestPoller_Reports(t *testing.T) {
	p := newPoller(t, &watcher{})
	fd, far := pair(t)
	var first, second watcher
	i, err := p.Watch(fd, unix.EPOLLIN, &first)
	require.NoError(t, err)
	require.NotZero(t, i)
	n, any := p.Poll()
	assert.Zero(t, n)
	assert.False(t, any)
	assert.False(t, p.Readable())

	write(t, far)
	assert.True(t, p.Readable())
	n, any = p.Poll()
	assert.Equal(t, 1, n)
	assert.True(t, any)
	assert.EqualValues(t, unix.EPOLLIN, first.events)

	p.Change(i, 0)
	assert.False(t, p.Readable())
	p.Change(i, unix.EPOLLIN)
	p.SetWatcher(i, &second)
	_, _ = p.Poll()
	assert.Equal(t, 1, first.calls)
	assert.Equal(t, 1, second.calls)
	for got, w := range p.All() {
		assert.Equal(t, fd, got)
		assert.Same(t, &second, w)
	}
	require.NoError(t, p.Remove(i))
	assert.ErrorIs(t, unix.SetNonblock(fd, true), unix.EBADF)
	assert.False(t, p.Readable())
	_, err = p.Watch(fd, unix.EPOLLIN, &first)
	assert.ErrorIs(t, err, unix.EBADF)
	assert.Equal(t, 2, p.Places())
}

// TestPoller_LateEventsAreDropped: if a watcher removes another descriptor with an event in the
// same poll, the event does not reach the descriptor that replaces it.
func TestPoller_LateEventsAreDropped(t *testing.T) {
	p := newPoller(t, &watcher{})
	var ids [2]Watch
	var ends [2]watcher
	var successor watcher
	for k := range ids {
		fd, far := pair(t)
		write(t, far)
		ends[k].do = func() { // the first one that is called replaces the other
			other := 1 - k
			if ids[other] == 0 {
				return
			}
			require.NoError(t, p.Remove(ids[other]))
			ids[other] = 0
			next, _ := pair(t)
			_, err := p.Watch(next, unix.EPOLLIN, &successor)
			require.NoError(t, err)
		}
		var err error
		ids[k], err = p.Watch(fd, unix.EPOLLIN, &ends[k])
		require.NoError(t, err)
	}
	n, _ := p.Poll()
	assert.Equal(t, 1, n)
	assert.Zero(t, successor.calls)
}

// TestPoller_Tick: the timer's watcher is called while the interval is set.
func TestPoller_Tick(t *testing.T) {
	var p *Poller
	w := &watcher{do: func() { p.ReadTimer() }}
	p = newPoller(t, w)
	require.NoError(t, p.SetTick(time.Millisecond))
	assert.Equal(t, time.Millisecond, p.TickInterval())
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool { p.Poll(); return w.calls > 1 })
	require.NoError(t, p.SetTick(0))
	p.ReadTimer() // an earlier tick
	calls := w.calls
	p.Poll()
	assert.Equal(t, calls, w.calls)
}
