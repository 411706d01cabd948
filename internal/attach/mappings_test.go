package attach

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/memfd"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
)

// withoutMappings calls f while package memfd may make no more mappings. Each call of free permits one. The Go runtime of the
// test can make none either, so it may end with "out of memory": make soak runs it.
func withoutMappings(t *testing.T, f func(free func())) {
	t.Helper()
	if !testenv.Soak() {
		t.Skip("takes all mappings of the process: GUCX_TEST_SOAK=1 runs it")
	}
	const most = 1 << 17
	if text, err := os.ReadFile("/proc/sys/vm/max_map_count"); err == nil {
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		require.NoError(t, err)
		if n > most {
			t.Skipf("vm.max_map_count is %d, so many mappings take too long", n)
		}
	}
	one, err := memfd.Create("filler", os.Getpagesize(), memfd.PeersWrite)
	require.NoError(t, err)
	all := []*memfd.Segment{one}
	defer func() {
		for _, s := range all {
			assert.NoError(t, s.Close())
		}
	}()
	for {
		fd, err := unix.FcntlInt(uintptr(one.FD()), unix.F_DUPFD_CLOEXEC, 0)
		require.NoError(t, err)
		s, err := memfd.Adopt(fd, memfd.ReadWrite, 1, os.Getpagesize())
		if err != nil {
			require.ErrorIs(t, err, unix.ENOMEM)
			break
		}
		all = append(all, s)
	}
	f(func() {
		last := len(all) - 1
		require.NoError(t, all[last].Close())
		all = all[:last]
	})
}

// TestNoMappings: a process that may make no more mappings dials with ErrNoMemory, and refuses dialers with ReasonLimit. Both
// work again when other mappings are removed.
func TestNoMappings(t *testing.T) {
	a, b := newStation(t, nil), newStation(t, nil)
	withoutMappings(t, func(free func()) {
		_, err := a.Dial(t.Context(), b.gid)
		assert.ErrorIs(t, err, ucs.ErrNoMemory)
		assert.ErrorContains(t, err, "vm.max_map_count")
		free() // for the dialer
		_, err = a.Dial(t.Context(), b.gid)
		assert.ErrorIs(t, err, ucs.ErrRejected)
		assert.ErrorContains(t, err, "no room for another link")
	})
	assert.NoError(t, a.dial(t, b.gid).Close())
}

// TestNoMappings_Local: a dial within a process that may make no more mappings fails with the setting to raise, and the acceptor
// counts no link. Later it works.
func TestNoMappings_Local(t *testing.T) {
	a, b := localStation(t, nil), localStation(t, func(c *Config) { c.MaxLinks = 1 })
	withoutMappings(t, func(free func()) {
		for range 4 { // the link segment, the table and the arena of the acceptor, and the arena of the dialer
			_, err := a.Dial(t.Context(), b.gid)
			assert.ErrorIs(t, err, ucs.ErrNoMemory)
			assert.ErrorContains(t, err, "raise it (sysctl -w vm.max_map_count=")
			assert.Empty(t, b.in)
			free()
		}
		out, err := a.Dial(t.Context(), b.gid)
		require.NoError(t, err)
		assert.NoError(t, out.Close())
	})
	in := within(t, b.in, "inbound link")
	within(t, in.Done(), "end of the link")
	assert.NoError(t, in.Close())
	assert.NoError(t, a.dial(t, b.gid).Close())
}
