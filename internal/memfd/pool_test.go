package memfd

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
)

const poolName = "memfd-pool-test"

// mappingsOf counts the mappings of this process whose name contains name.
func mappingsOf(t testing.TB, name string) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	return strings.Count(string(maps), name)
}

// TestPool_FewMappings: segments are parts of few mappings, and of one if there is only one segment.
func TestPool_FewMappings(t *testing.T) {
	files := testenv.OpenFiles(t)
	size := 2 * os.Getpagesize()
	p := NewPool(poolName, size)
	var all []*Segment
	for range 1000 {
		s, err := p.Create()
		require.NoError(t, err)
		require.Len(t, s.Bytes(), size)
		require.Equal(t, size, cap(s.Bytes()))
		require.Equal(t, -1, s.FD())
		all = append(all, s)
		if len(all) == 1 {
			require.Len(t, p.open, 0, "the first segment has a mapping alone")
		}
	}
	assert.LessOrEqual(t, mappingsOf(t, poolName), 7+1000/maxParts)
	for i, s := range all {
		s.Bytes()[0], s.Bytes()[size-1] = byte(i), byte(i)
	}
	for i, s := range all {
		require.Equal(t, byte(i), s.Bytes()[0], "no segment overlaps another one")
		require.NoError(t, s.Close())
		require.NoError(t, s.Close(), "again")
	}
	assert.Zero(t, mappingsOf(t, poolName))
	assert.Zero(t, p.used)
	assert.Equal(t, files, testenv.OpenFiles(t))
}

// TestPool_ReusesZeroedMemory: the memory of a closed segment is freed, and zero in the next segment.
func TestPool_ReusesZeroedMemory(t *testing.T) {
	p := NewPool(poolName, os.Getpagesize())
	var all []*Segment
	for range 4 { // mappings of 1, 1 and 2 parts
		s, err := p.Create()
		require.NoError(t, err)
		all = append(all, s)
	}
	assert.Equal(t, 3, mappingsOf(t, poolName))
	for range 10 {
		last := all[len(all)-1]
		mem := last.Bytes()
		mem[5] = 7
		clone := last.Clone()
		require.NoError(t, last.Close())
		assert.EqualValues(t, 7, clone.Bytes()[5], "a clone has the memory")
		clone.Bytes()[6] = 8
		require.NoError(t, clone.Close())
		next, err := p.Create()
		require.NoError(t, err)
		require.True(t, &next.Bytes()[0] == &mem[0], "the part that is free")
		assert.Equal(t, make([]byte, os.Getpagesize()), next.Bytes())
		all[len(all)-1] = next
	}
	assert.Equal(t, 3, mappingsOf(t, poolName))
	for _, s := range all {
		require.NoError(t, s.Close())
	}
	assert.Zero(t, mappingsOf(t, poolName))
}

// TestPool_LimitOfMappings: a pool fails with the reason if no mapping is left, and works again later.
func TestPool_LimitOfMappings(t *testing.T) {
	p := NewPool(poolName, os.Getpagesize())
	rest := maxMappings() - mappings.Load()
	mappings.Add(rest)
	_, err := p.Create()
	mappings.Add(-rest)
	assert.ErrorIs(t, err, unix.ENOMEM)
	assert.ErrorContains(t, err, "raise it (sysctl -w vm.max_map_count=")
	s, err := p.Create()
	require.NoError(t, err)
	require.NoError(t, s.Close())
	assert.Zero(t, mappingsOf(t, poolName))
}

// TestPool_OneIfNoRoomForMore: a mapping has one part if the file size limit permits no more.
func TestPool_OneIfNoRoomForMore(t *testing.T) {
	const env = "MEMFD_TEST_POOL"
	if os.Getenv(env) == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestPool_OneIfNoRoomForMore$")
		cmd.Env = append(os.Environ(), env+"=1", "GORACE=atexit_sleep_ms=0")
		out, err := cmd.CombinedOutput()
		assert.NoError(t, err, "%s", out)
		return
	}
	size := os.Getpagesize()
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(size), Max: uint64(size)}))
	p := NewPool(poolName, size)
	for range 8 {
		_, err := p.Create()
		require.NoError(t, err)
	}
	assert.Equal(t, 8, mappingsOf(t, poolName))
}

// TestPool_Concurrent: goroutines create, clone and close at the same time, and each finds only zeros.
func TestPool_Concurrent(t *testing.T) {
	p := NewPool(poolName, os.Getpagesize())
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			var mine []*Segment
			for i := range 300 {
				s, err := p.Create()
				if !assert.NoError(t, err) || !assert.Equal(t, make([]byte, 16), s.Bytes()[:16]) {
					return
				}
				s.Bytes()[g] = 1
				mine = append(mine, s, s.Clone())
				for len(mine) > i%16 {
					assert.NoError(t, mine[0].Close())
					mine = mine[1:]
				}
			}
			for _, s := range mine {
				assert.NoError(t, s.Close())
			}
		})
	}
	wg.Wait()
	assert.Zero(t, p.used)
	assert.Zero(t, mappingsOf(t, poolName))
}

// TestMapper_AdoptOwn: a segment of this process is mapped once more for all that adopt it, whether by its descriptor or not.
func TestMapper_AdoptOwn(t *testing.T) {
	before := testenv.OpenFiles(t)
	var m Mapper
	s, ro := create(t, 4*minStep, PeersWrite), create(t, 8192, PeersRead)
	a, err := m.AdoptOwn(s, ReadWrite|HugePages, 4096)
	require.NoError(t, err)
	b := adoptBy(t, &m, s, ReadWrite, 4096)
	assert.True(t, sameMapping(a, b))
	require.NoError(t, a.Grow(3*minStep))
	a.Bytes()[3*minStep-1] = 4
	assert.EqualValues(t, 4, s.Bytes()[3*minStep-1])
	c, err := m.AdoptOwn(ro, ReadOnly, 8192)
	require.NoError(t, err)
	assert.ErrorIs(t, unix.Mprotect(c.Bytes(), unix.PROT_READ|unix.PROT_WRITE), unix.EACCES)
	_, err = m.AdoptOwn(ro, ReadWrite, 8192)
	assert.ErrorIs(t, err, unix.EACCES)
	for _, seg := range []*Segment{a, b, c} {
		require.NoError(t, seg.Close())
	}
	assert.Empty(t, m.files)
	require.NoError(t, s.Close())
	_, err = m.AdoptOwn(s, ReadWrite, 4096)
	assert.ErrorIs(t, err, unix.EBADF)
	require.NoError(t, ro.Close())
	assert.Equal(t, before, testenv.OpenFiles(t))
}
