package ucp_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
)

// The tests of this file show rows of "Limits of the process" in docs/operations.md.

// TestLimits_OpenFiles: tcp has one descriptor for each connection. sm has one for each worker of a peer process, one or two more
// for the process, and one mapping for each direction of a connection.
func TestLimits_OpenFiles(t *testing.T) {
	const workers = 5
	for _, tc := range []struct {
		tls         string
		least, most int // descriptors
		mappings    int // for each direction
	}{
		{"sm", workers + 1, workers + 2, workers},
		{"tcp", workers, workers, 0},
	} {
		t.Run(tc.tls, func(t *testing.T) {
			x := openIdleWorld(t, ucppair.FromEnv(t, "TLS="+tc.tls))
			c := startCrowd(t, x, tc.tls, workers)
			files, mappings := testenv.OpenFiles(t), openSharedMappings(t)
			until := func() { // handshakes close their sockets in other goroutines
				more := 0
				testenv.ProgressOr(t, testenv.Watchdog, func() bool {
					x.w.Progress()
					more = testenv.OpenFiles(t) - files
					return more >= tc.least && more <= tc.most
				}, func() string { return fmt.Sprintf("%d descriptors", more) })
			}
			finish := func(r *ucp.Request, err error) {
				require.NoError(t, err)
				testenv.ProgressWithin(t, testenv.Watchdog, func() bool { x.w.Progress(); return r.Done() }) // a sleep would open descriptors
				r.Release()
			}
			for _, r := range c.workers {
				ep, err := x.w.NewEP(r.Addr, ucp.EPConfig{})
				require.NoError(t, err)
				finish(ep.SendActive(0, nil, []byte{1}, nil))
				finish(ep.Flush())
			}
			until()
			assert.GreaterOrEqual(t, openSharedMappings(t)-mappings, tc.mappings)
			c.requireSends(t, x.w)
			assert.GreaterOrEqual(t, openSharedMappings(t)-mappings, 2*tc.mappings)
		})
	}
}

func openSharedMappings(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	return testenv.SharedMappings(maps)
}

// TestLimits_LockedMemory: only devices of InfiniBand lock or pin registered memory.
func TestLimits_LockedMemory(t *testing.T) {
	locked := func() [2]int { return [2]int{testenv.StatusKiB(t, "VmLck"), testenv.StatusKiB(t, "VmPin")} }
	before := locked()
	for _, tls := range []string{"sm", "tcp", `\rc`} {
		p := ucppair.New(t, tlsets.Real(tls, tls), ucp.Config{}).Both().Warm()
		data := make([]byte, 1<<20)
		mem, err := p.B.Ctx.MemMap(data)
		require.NoError(t, err)
		key, err := p.A.EP.Unpack(mem.Pack())
		require.NoError(t, err)
		require.NoError(t, p.Finish(p.A.EP.Put(testenv.Pattern(len(data), 1), key.Addr(), key, nil)))
		require.NoError(t, p.Flush())
		assert.Equal(t, before, locked(), tls)
		key.Close()
		require.NoError(t, mem.Close())
	}
}
