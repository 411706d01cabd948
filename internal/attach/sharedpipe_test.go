package attach

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestLinks_ShareThePipe: all links to a peer have one descriptor of its pipe, until the last of them is closed. Both
// peers are in this process.
func TestLinks_ShareThePipe(t *testing.T) {
	const links = 5
	a, b := newStation(t, nil), newStation(t, nil)
	var all []*Link
	for range links {
		all = append(all, a.dial(t, b.gid).Link, within(t, b.in, "link to b").Link)
		all = append(all, b.dial(t, a.gid).Link, within(t, a.in, "link to a").Link)
	}
	distinct := map[int]bool{}
	for _, l := range all {
		distinct[l.WakeFD] = true
	}
	assert.Len(t, distinct, 2)
	for i, l := range all[:len(all)-1] {
		require.NoError(t, l.Close())
		require.NoError(t, l.Close(), "again")
		require.NoError(t, Wake(all[len(all)-1].WakeFD), "after %d are closed", i+1)
	}
	require.NoError(t, all[len(all)-1].Close())
}

// TestSharePipe_OfAnother: two pipes have two descriptors, and what is no pipe none.
func TestSharePipe_OfAnother(t *testing.T) {
	one, other := newTestWaker(t), newTestWaker(t)
	p, err := sharePipe(one.PeerFD())
	require.NoError(t, err)
	again, err := sharePipe(one.PeerFD())
	require.NoError(t, err)
	q, err := sharePipe(other.PeerFD())
	require.NoError(t, err)
	assert.Same(t, p, again)
	assert.NotEqual(t, p.fd, q.fd)
	require.NoError(t, p.close())
	require.NoError(t, Wake(again.fd))
	assert.True(t, readable(t, one.FD()))
	assert.False(t, readable(t, other.FD()))
	require.NoError(t, again.close())
	require.NoError(t, q.close())
	fd, err := unix.MemfdCreate("x", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	defer unix.Close(fd)
	_, err = sharePipe(fd)
	require.Error(t, err)
}
