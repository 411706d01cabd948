package self

import (
	"bytes"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// inside begins a visit of mem, which the returned function ends.
func (r *rig) inside(t *testing.T, mem uct.Mem) (end func()) {
	t.Helper()
	b, before, err := r.ep.at(r.keyOf(t, mem), mem.Addr(), 8, uct.AccessRemoteRead)
	require.NoError(t, err)
	require.Len(t, b, 8)
	return func() { r.ep.peer.guard.Leave(before) }
}

// TestMemClose_InUse: if an operation of another goroutine does not end, Close fails and the memory is still
// registered, without a valid key. A later Close succeeds.
func TestMemClose_InUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRig(t)
		mem, err := r.md.Reg(make([]byte, 64), uct.AccessAll)
		require.NoError(t, err)
		key := r.keyOf(t, mem)
		end := r.inside(t, mem)
		for range 2 {
			err = mem.Close()
			var inUse *ucs.InUseError
			require.ErrorAs(t, err, &inUse)
			assert.Equal(t, []int{os.Getpid()}, inUse.PIDs)
			assert.ErrorIs(t, err, ucs.ErrTimedOut)
		}
		assert.ErrorIs(t, r.md.Close(), uct.ErrBusy)
		end()
		assert.Equal(t, ucs.ErrRemoteAccess, r.ep.PutShort([]byte{1}, mem.Addr(), key))
		require.NoError(t, mem.Close())
		require.NoError(t, mem.Close(), "again")
	})
}

// TestMemClose_DoesNotWaitForAllocated: an operation in progress keeps allocated memory alive.
func TestMemClose_DoesNotWaitForAllocated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRig(t)
		mem, err := r.md.Alloc(64, uct.AccessAll)
		require.NoError(t, err)
		end := r.inside(t, mem)
		require.NoError(t, mem.Close())
		end()
	})
}

// TestMemClose_DuringPuts: memory is not written after another goroutine has closed it, while the owner of
// the iface puts continuously.
func TestMemClose_DuringPuts(t *testing.T) {
	r := openRig(t)
	const n = 1 << 20
	src := bytes.Repeat([]byte{1}, n)
	for range testenv.Rounds(50, 2000) {
		buf := make([]byte, n)
		mem, err := r.md.Reg(buf, uct.AccessAll)
		require.NoError(t, err)
		key := r.keyOf(t, mem)
		var puts atomic.Int64
		ended := make(chan error, 1)
		go func() {
			for {
				if err := r.ep.PutShort(src, mem.Addr(), key); err != nil {
					ended <- err
					return
				}
				puts.Add(1)
			}
		}()
		for puts.Load() == 0 {
			runtime.Gosched()
		}
		// The goroutine that copies may wait for a CPU for longer than Close waits.
		testenv.ProgressWithin(t, testenv.Watchdog, func() bool { return mem.Close() == nil })
		clear(buf)
		assert.Equal(t, ucs.ErrRemoteAccess, <-ended)
		require.Equal(t, n, bytes.Count(buf, []byte{0}), "written after Close")
	}
}
