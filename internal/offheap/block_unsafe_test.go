package offheap

import (
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/invariants"
	"github.com/gucx/gucx/internal/race"
)

func TestAlloc_ZeroedAlignedAndExact(t *testing.T) {
	for _, n := range []int{1, 63, 4095, 4096, 4097, 1 << 20} {
		b, err := Alloc(n)
		require.NoError(t, err)
		assert.Equal(t, n, b.Len())
		assert.Len(t, b.Bytes(), n)
		assert.Equal(t, n, cap(b.Bytes()), "append must not run into the rest of the page")
		assert.Zero(t, uintptr(b.Pointer())%uintptr(os.Getpagesize()))
		assert.Equal(t, make([]byte, n), b.Bytes())
		for i := range b.Bytes() {
			b.Bytes()[i] = byte(i)
		}
		require.NoError(t, b.Free())
	}
}

func TestAlloc_RefusesBadLengths(t *testing.T) {
	for _, n := range []int{0, -1} {
		_, err := Alloc(n)
		assert.ErrorIs(t, err, unix.EINVAL)
	}
}

func TestAlloc_OutOfMemory(t *testing.T) {
	if race.Enabled {
		t.Skip("the race build allocates on the Go heap, which ends the process")
	}
	_, err := Alloc(1 << 50)
	assert.ErrorIs(t, err, unix.ENOMEM)
	var call *os.SyscallError
	require.ErrorAs(t, err, &call)
	assert.Equal(t, "mmap", call.Syscall)
}

func TestInUse_CountsAllocatedMemory(t *testing.T) {
	bytes := InUse()
	a, err := Alloc(100)
	require.NoError(t, err)
	b, err := Alloc(5000)
	require.NoError(t, err)
	assert.Equal(t, bytes+5100, InUse())
	require.NoError(t, a.Free())
	assert.Equal(t, bytes+5000, InUse())
	require.NoError(t, b.Free())
	assert.Equal(t, bytes, InUse())
}

func TestFree_Twice(t *testing.T) {
	before := InUse()
	b, err := Alloc(4096)
	require.NoError(t, err)
	require.NoError(t, b.Free())
	if invariants.Enabled {
		assert.Panics(t, func() { _ = b.Free() })
		return
	}
	assert.NoError(t, b.Free())
	assert.Equal(t, before, InUse(), "counted twice")
}

func TestFree_ByManyGoroutinesHappensOnce(t *testing.T) {
	if invariants.Enabled {
		t.Skip("a second Free panics with invariants")
	}
	before := InUse()
	b, err := Alloc(4096)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { assert.NoError(t, b.Free()) })
	}
	wg.Wait()
	assert.Equal(t, before, InUse())
}

// TestBlock_SurvivesCollection holds the reason for the package: memory of which
// only an address is left stays where it is as long as the block lives.
func TestBlock_SurvivesCollection(t *testing.T) {
	b, err := Alloc(1 << 16)
	require.NoError(t, err)
	b.Bytes()[0], b.Bytes()[1<<16-1] = 0x11, 0x22
	where := b.Pointer()
	for range 3 {
		runtime.GC()
	}
	assert.Equal(t, where, b.Pointer())
	assert.Equal(t, byte(0x11), *(*byte)(where))
	assert.Equal(t, byte(0x22), *(*byte)(unsafe.Add(where, 1<<16-1)))
	require.NoError(t, b.Free())
}

// TestFree_LateAccessFaults holds the promise of -tags invariants.
func TestFree_LateAccessFaults(t *testing.T) {
	if !invariants.Enabled || race.Enabled {
		t.Skip("freed memory is kept without rights only with -tags invariants and without -race")
	}
	b, err := Alloc(4096)
	require.NoError(t, err)
	require.NoError(t, b.Free())
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	assert.Panics(t, func() { b.Bytes()[0] = 1 })
}

func TestFree_ManyBlocks(t *testing.T) {
	before := InUse()
	for range 300 { // more than the retired of -tags invariants holds
		b, err := Alloc(8192)
		require.NoError(t, err)
		require.NoError(t, b.Free())
	}
	assert.Equal(t, before, InUse())
}
