package memfd

import (
	"fmt"
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
)

// adoptBy adopts s through m.
func adoptBy(t testing.TB, m *Mapper, s *Segment, access Access, mapLen int) *Segment {
	t.Helper()
	peer, err := m.Adopt(dup(t, s.FD()), access, 1, 1<<40, mapLen)
	require.NoError(t, err)
	return peer
}

func sameMapping(a, b *Segment) bool {
	return unsafe.SliceData(a.Bytes()) == unsafe.SliceData(b.Bytes())
}

func TestMapper_MapsOnce(t *testing.T) {
	before := testenv.OpenFiles(t)
	const size = 4 * minStep
	var m Mapper
	s, other := create(t, size, PeersWrite), create(t, size, PeersWrite)
	a, b := adoptBy(t, &m, s, ReadWrite, 4096), adoptBy(t, &m, s, ReadWrite, 1<<20)
	c, ro := adoptBy(t, &m, other, ReadWrite, 1), adoptBy(t, &m, s, ReadOnly, 1)
	assert.True(t, sameMapping(a, b))
	assert.False(t, sameMapping(a, c), "another file")
	assert.False(t, sameMapping(a, ro), "other rights")
	assert.Len(t, a.Bytes(), minStep, "not the whole file")
	assert.Equal(t, size, a.FileLen())
	a.Bytes()[7] = 9
	assert.EqualValues(t, 9, s.Bytes()[7])
	for _, seg := range []*Segment{a, b, c, ro} {
		require.NoError(t, seg.Close())
		require.NoError(t, seg.Close(), "again")
	}
	assert.Empty(t, m.files)
	require.NoError(t, s.Close())
	require.NoError(t, other.Close())
	assert.Equal(t, before, testenv.OpenFiles(t))
}

// TestSegment_Grow: each segment keeps the mapping that it has until it asks for more,
// and then gets the longest.
func TestSegment_Grow(t *testing.T) {
	var m Mapper
	s := create(t, 64<<20, PeersWrite)
	a, b := adoptBy(t, &m, s, ReadWrite, 1), adoptBy(t, &m, s, ReadWrite, 1)
	short := b.Bytes()
	require.NoError(t, a.Grow(9<<20))
	assert.GreaterOrEqual(t, len(a.Bytes()), 9<<20)
	assert.Less(t, len(a.Bytes()), 12<<20, "a quarter more at most")
	a.Bytes()[9<<20-1], short[0] = 5, 6
	assert.EqualValues(t, 5, s.Bytes()[9<<20-1])
	assert.EqualValues(t, 6, a.Bytes()[0], "the same memory")
	require.NoError(t, b.Grow(3<<20))
	assert.True(t, sameMapping(a, b))
	assert.ErrorIs(t, a.Grow(64<<20+1), ErrSize)
	require.NoError(t, a.Grow(64<<20), "all of it")
	assert.Len(t, a.Bytes(), 64<<20)
	require.NoError(t, b.Grow(64<<20))
	assert.EqualValues(t, 5, b.Bytes()[9<<20-1])
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
}

// TestSegment_Clone: the mapping of a clone stays when the segment closes or grows.
func TestSegment_Clone(t *testing.T) {
	before := testenv.OpenFiles(t)
	var m Mapper
	s := create(t, 4*minStep, PeersWrite)
	a := adoptBy(t, &m, s, ReadWrite, 4096)
	grown, closed := a.Clone(), a.Clone()
	assert.True(t, sameMapping(a, grown))
	require.NoError(t, closed.Close())
	require.NoError(t, a.Grow(3*minStep))
	assert.False(t, sameMapping(a, grown))
	require.NoError(t, a.Close())
	require.NoError(t, s.Close())
	grown.Bytes()[minStep-1] = 3
	assert.EqualValues(t, 3, grown.Bytes()[minStep-1])
	require.NoError(t, grown.Close())
	assert.Empty(t, m.files)
	assert.Equal(t, before, testenv.OpenFiles(t))
}

func TestMapper_RefusesAsAdopt(t *testing.T) {
	var m Mapper
	s := create(t, 8192, PeersRead)
	n := len(s.Bytes())
	for _, tc := range []struct {
		name           string
		min, max, mapN int
		access         Access
	}{
		{"too short", n + 1, 1 << 20, 1, ReadOnly},
		{"too long", 1, n - 1, 1, ReadOnly},
		{"longer than the file", 1, 1 << 20, 1 << 20, ReadOnly},
		{"for reading only", 1, 1 << 20, 1, ReadWrite},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := testenv.OpenFiles(t)
			_, err := m.Adopt(dup(t, s.FD()), tc.access, tc.min, tc.max, tc.mapN)
			assert.Error(t, err)
			assert.Empty(t, m.files)
			assert.Equal(t, before, testenv.OpenFiles(t))
		})
	}
}

// TestMapper_DescriptorForReading: a descriptor that does not permit the access is refused before others may use the file by it.
func TestMapper_DescriptorForReading(t *testing.T) {
	s, err := Create("gucx-test", os.Getpagesize(), PeersWrite)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", s.FD()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	var m Mapper
	_, err = m.file(fd, ReadWrite, 1, os.Getpagesize())
	require.ErrorIs(t, err, unix.EACCES)
	assert.Empty(t, m.files)
}
