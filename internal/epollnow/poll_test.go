package epollnow

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestPoll: Poll returns at once, with the descriptors that are readable.
func TestPoll(t *testing.T) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	require.NoError(t, err)
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	require.NoError(t, err)
	require.NoError(t, unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: 7}))
	var events [2]unix.EpollEvent
	n, err := Poll(epfd, events[:])
	require.NoError(t, err)
	assert.Zero(t, n)

	_, err = unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	require.NoError(t, err)
	n, err = Poll(epfd, events[:])
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	assert.EqualValues(t, 7, events[0].Fd)

	require.NoError(t, unix.Close(fd))
	require.NoError(t, unix.Close(epfd))
	_, err = Poll(epfd, events[:])
	assert.ErrorIs(t, err, unix.EBADF)
}
