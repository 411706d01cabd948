package race

import (
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestReleaseAcquire hands plain Go memory over through a flag that the detector
// does not see as an order: a word of a private mapping. Under -race the test
// fails if the wrappers do nothing.
func TestReleaseAcquire(t *testing.T) {
	for _, tc := range []struct {
		name             string
		release, acquire func(flag unsafe.Pointer)
	}{
		{"an address", Release, Acquire},
		{"peers", func(unsafe.Pointer) { ReleaseToPeers() }, func(unsafe.Pointer) { AcquireFromPeers() }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			mem, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
			require.NoError(t, err)
			flag := (*uint32)(unsafe.Pointer(unsafe.SliceData(mem)))
			payload, got := new(int), make(chan int)
			go func() {
				for atomic.LoadUint32(flag) == 0 {
					runtime.Gosched()
				}
				tc.acquire(unsafe.Pointer(flag))
				got <- *payload
			}()
			*payload = 42
			tc.release(unsafe.Pointer(flag))
			atomic.StoreUint32(flag, 1)
			assert.Equal(t, 42, <-got)
			require.NoError(t, unix.Munmap(mem))
		})
	}
}

func TestRanges_AcceptAnyLength(t *testing.T) {
	buf := make([]byte, 100)
	for _, n := range []int{1, 8, 100} {
		ReadRange(unsafe.Pointer(unsafe.SliceData(buf)), n)
		WriteRange(unsafe.Pointer(unsafe.SliceData(buf)), n)
	}
	assert.Equal(t, make([]byte, 100), buf)
}
