package rxe

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/offheap"
	"github.com/gucx/gucx/ucs"
)

// queueMemory returns n bytes of memory with the header of a queue, as the kernel creates it.
func queueMemory(t testing.TB, log2SlotLen, mask uint32, n int) []byte {
	t.Helper()
	b, err := offheap.Alloc(n)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Free()) })
	if n >= ringHeaderLen {
		*(*ringHeader)(unsafe.Pointer(&b.Bytes()[0])) = ringHeader{log2SlotLen: log2SlotLen, indexMask: mask}
	}
	return b.Bytes()
}

func TestNewRing(t *testing.T) {
	for _, c := range []struct {
		name       string
		log2, mask uint32
		len        int
		ok         bool
	}{
		{"four slots of 64 bytes", 6, 3, ringHeaderLen + 256, true},
		{"more memory than the slots", 7, 1, 4096, true},
		{"no header", 6, 3, ringHeaderLen - 1, false},
		{"one byte short", 6, 3, ringHeaderLen + 255, false},
		{"slots too short", 5, 3, 4096, false},
		{"no power of two", 6, 4, 4096, false},
		{"one slot", 6, 0, 4096, false},
		{"all ones", 6, 1<<32 - 1, 4096, false},
		{"shift of 64", 64, 3, 4096, false},
		{"product wraps", 31, 1<<31 - 1, 4096, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := newRing(queueMemory(t, c.log2, c.mask, c.len), 64)
			if !c.ok {
				assert.ErrorIs(t, err, ucs.ErrInternal)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, int(c.mask), r.depth())
			assert.Equal(t, c.mask, r.free(0))
		})
	}
}

// FuzzNewRing checks that for any header of a queue, newRing returns an error or all slots are in its memory.
func FuzzNewRing(f *testing.F) {
	f.Add(uint32(6), uint32(3), uint32(0), uint32(0), uint16(640))
	f.Add(uint32(7), uint32(255), uint32(1<<31), uint32(77), uint16(40000))
	f.Fuzz(func(t *testing.T, log2, mask, producer, consumer uint32, n uint16) {
		mem := queueMemory(t, log2, mask, int(n)+1)
		r, err := newRing(mem, wcLen)
		if err != nil {
			return
		}
		r.header.producer, r.header.consumer = producer, consumer
		end := uintptr(unsafe.Pointer(&mem[0])) + uintptr(len(mem))
		for _, i := range []uint32{r.producer(), r.consumer(), producer, consumer, r.mask} {
			at := uintptr(r.slot(i))
			assert.GreaterOrEqual(t, at, uintptr(unsafe.Pointer(&mem[0]))+uintptr(ringHeaderLen))
			assert.LessOrEqual(t, at+uintptr(r.slotLen), end)
		}
		assert.LessOrEqual(t, r.free(r.producer()), r.mask)
	})
}
