package ucp_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/offheap"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucp"
)

// footprint is the resources of this process.
type footprint struct {
	files, mappings int
	shmem           int // resident shared memory, KiB
	goroutines      int
	eps             int // of one worker
	heap            int // bytes in use after a garbage collection
	offheap         int // bytes
}

// footprintOf measures the process and a worker, which must be shared so that others may make progress.
func footprintOf(t testing.TB, s *ucp.SharedWorker) (f footprint) {
	t.Helper()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	s.Do(func(w *ucp.Worker) { f.eps = w.EPs().Len() })
	f.files, f.mappings = len(entries), testenv.SharedMappings(maps)
	f.shmem, f.goroutines = testenv.StatusKiB(t, "RssShmem"), runtime.NumGoroutine()
	f.heap, f.offheap = int(m.HeapAlloc), int(offheap.InUse())
	return f
}

// beyond names the resources that have grown by more than noise.
func (f footprint) beyond(before footprint) (more []string) {
	for _, x := range []struct {
		what            string
		now, was, noise int
	}{
		{"descriptors", f.files, before.files, 2},
		{"mappings", f.mappings, before.mappings, 2},
		{"KiB of shared memory", f.shmem, before.shmem, 6 << 10}, // receive buffers are written one after another
		{"goroutines", f.goroutines, before.goroutines, 2},
		{"EPs", f.eps, before.eps, 0},
		{"bytes of heap", f.heap, before.heap, 512 << 10}, // pools
		{"bytes off the heap", f.offheap, before.offheap, 64 << 10},
	} {
		if x.now > x.was+x.noise {
			more = append(more, fmt.Sprintf("%d %s, %d before", x.now, x.what, x.was))
		}
	}
	return more
}

// requireNoGrowth waits until the process has no more resources than before: that a peer has gone is detected later.
func requireNoGrowth(t testing.TB, s *ucp.SharedWorker, before footprint) footprint {
	t.Helper()
	var now footprint
	for start := time.Now(); time.Since(start) < testenv.Watchdog; runtime.Gosched() {
		if now = footprintOf(t, s); len(now.beyond(before)) == 0 {
			return now
		}
	}
	require.Fail(t, "resources have grown", "%s", strings.Join(now.beyond(before), "; "))
	return now
}
