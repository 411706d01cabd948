package attach

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
)

func newTestWaker(t *testing.T) *Waker {
	w, err := NewWaker()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, w.Close()) })
	return w
}

func readable(t *testing.T, fd int) bool {
	t.Helper()
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	_, err := unix.Poll(p, 0)
	require.NoError(t, err)
	return p[0].Revents&unix.POLLIN != 0
}

func TestWaker_WakesUntilDrain(t *testing.T) {
	w := newTestWaker(t)
	assert.False(t, readable(t, w.FD()))
	w.Drain()
	for range drainLen {
		require.NoError(t, Wake(w.WakeFD()))
	}
	assert.True(t, readable(t, w.FD()))
	w.Drain()
	assert.False(t, readable(t, w.FD()))
}

// TestWaker_DrainReturnsDuringAFlood: the pipe is full, and Drain reads a part of it only.
func TestWaker_DrainReturnsDuringAFlood(t *testing.T) {
	w := newTestWaker(t)
	_, err := unix.Write(w.PeerFD(), make([]byte, 2*drainLen))
	require.NoError(t, err)
	w.Drain()
	assert.True(t, readable(t, w.FD()))
	w.Drain()
	assert.False(t, readable(t, w.FD()))
}

// TestWaker_PeersCannotMakeItBlock: a peer makes the open file that it was given blocking and fills the
// pipe, or leaves it empty.
func TestWaker_PeersCannotMakeItBlock(t *testing.T) {
	w := newTestWaker(t)
	peer, err := unix.Dup(w.PeerFD()) // as a message with the descriptor has it
	require.NoError(t, err)
	defer unix.Close(peer)
	other, err := reopen(w.PeerFD())
	require.NoError(t, err)
	defer unix.Close(other)
	for err == nil {
		_, err = unix.Write(peer, make([]byte, 4096))
	}
	require.ErrorIs(t, err, unix.EAGAIN)
	for _, fd := range []int{peer, w.PeerFD()} {
		require.NoError(t, unix.SetNonblock(fd, false))
	}
	done := make(chan error, 2)
	go func() {
		done <- Wake(w.WakeFD())
		done <- Wake(other)
	}()
	require.NoError(t, within(t, done, "Wake of the owner"))
	require.NoError(t, within(t, done, "Wake of another peer"))
	go func() {
		for readable(t, w.FD()) {
			w.Drain()
		}
		w.Drain()
		done <- nil
	}()
	within(t, done, "Drain")
}

func TestWake_ReportsDeadOwner(t *testing.T) {
	w := newTestWaker(t)
	own, err := reopen(w.PeerFD())
	require.NoError(t, err)
	defer unix.Close(own)
	require.NoError(t, w.File("test").Close())
	assert.ErrorIs(t, Wake(own), unix.EPIPE)
	assert.ErrorIs(t, Wake(1<<20), unix.EBADF)
}

func TestWake_AllocatesNothing(t *testing.T) {
	w := newTestWaker(t)
	assert.Zero(t, testing.AllocsPerRun(100, func() { _ = Wake(w.WakeFD()) }))
}

// TestNewWaker_NoDescriptors: a waker needs three descriptors, and closes those that it got if it gets fewer.
func TestNewWaker_NoDescriptors(t *testing.T) {
	for n := range 4 {
		var w *Waker
		var err error
		before := testenv.OpenFiles(t)
		testenv.WithDescriptors(t, n, func() { w, err = NewWaker() })
		if n == 3 {
			require.NoError(t, err)
			require.NoError(t, w.Close())
			require.NoError(t, w.Close(), "second close")
		} else {
			assert.ErrorIs(t, err, unix.EMFILE)
		}
		assert.Equal(t, before, testenv.OpenFiles(t))
	}
}
