package memfd

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

func createHuge(t testing.TB, size int) *Segment {
	t.Helper()
	s, err := CreateHuge("test-huge", size, PeersWrite)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skipf("the test needs vm.nr_hugepages of 8 or more: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestCreateHuge_SharedAndZeroAgain(t *testing.T) {
	s := createHuge(t, 3<<20)
	require.True(t, s.huge)
	page, huge, err := pageOf(s.FD())
	require.NoError(t, err)
	assert.True(t, huge)
	assert.Greater(t, page, os.Getpagesize())
	assert.Zero(t, len(s.Bytes())%page, "whole pages")

	peer, err := Adopt(dup(t, s.FD()), ReadWrite|HugePages, 1, len(s.Bytes()))
	require.NoError(t, err)
	prefix, err := new(Mapper).Adopt(dup(t, s.FD()), ReadWrite|HugePages, 1, len(s.Bytes()), os.Getpagesize())
	require.NoError(t, err)
	assert.Zero(t, len(prefix.Bytes())%page, "whole pages")
	peer.Bytes()[5] = 7
	assert.EqualValues(t, 7, s.Bytes()[5])
	assert.EqualValues(t, 7, prefix.Bytes()[5])
	require.NoError(t, peer.Close())
	require.NoError(t, prefix.Close())

	a := NewArena(s, os.Getpagesize())
	off, err := a.Alloc(page, true)
	require.NoError(t, err)
	s.Bytes()[off], s.Bytes()[off+page-1] = 1, 2
	a.Free(off, page)
	again, err := a.Alloc(page, true)
	require.NoError(t, err)
	assert.Equal(t, off, again)
	assert.Equal(t, make([]byte, page), s.Bytes()[off:off+page])
}

// TestAdopt_HugePagesOnlyIfRequested: their maker could take them away.
func TestAdopt_HugePagesOnlyIfRequested(t *testing.T) {
	s := createHuge(t, 1)
	fd := dup(t, s.FD())
	_, err := Adopt(fd, ReadWrite, 1, len(s.Bytes()))
	assert.ErrorIs(t, err, ErrKind)
	assert.True(t, isClosed(fd))
}

func TestCreateHuge_PoolTooSmall(t *testing.T) {
	const size = 1 << 50
	needRoom(t, size)
	before := testenv.OpenFiles(t)
	_, err := CreateHuge("test-huge", size, PeersWrite)
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.ErrorContains(t, err, hugePool)
	assert.Equal(t, before, testenv.OpenFiles(t))
}
