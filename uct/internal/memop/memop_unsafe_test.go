package memop

import (
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
)

func TestStoreAndLoad(t *testing.T) {
	mem := make([]byte, 32)
	for _, n := range []int{0, 1, 8, 16} {
		clear(mem)
		Store(unsafe.Pointer(&mem[3]), testenv.Pattern(n, n+1))
		assert.Equal(t, testenv.Pattern(n, n+1), mem[3:3+n])
		assert.Equal(t, make([]byte, 32-3-n), mem[3+n:])
		got := make([]byte, n)
		Load(got, unsafe.Pointer(&mem[3]))
		assert.Equal(t, testenv.Pattern(n, n+1), got)
	}
}

func TestGatherScatter_Inverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lens := rapid.SliceOfN(rapid.IntRange(0, 50), 0, 8).Draw(t, "lens")
		var from, to []uct.IOV
		total := 0
		for i, n := range lens {
			from = append(from, uct.IOV{Buf: testenv.Pattern(n, i)})
			to = append(to, uct.IOV{Buf: make([]byte, n)})
			total += n
		}
		flat := make([]byte, total)
		require.Equal(t, total, Gather(flat, from))
		Scatter(to, flat)
		require.Equal(t, from, to)
	})
}

// mem is a uct.Mem of a slice.
type mem struct {
	uct.Mem
	buf []byte
}

func (m mem) Bytes() []byte { return m.buf }

func TestCovers(t *testing.T) {
	big := make([]byte, 100)
	m := mem{buf: big[10:90]}
	for _, tc := range []struct {
		name string
		iov  []uct.IOV
		want bool
	}{
		{"none", nil, true},
		{"without a handle", []uct.IOV{{Buf: big}}, true},
		{"whole", []uct.IOV{{Buf: big[10:90], Mem: m}}, true},
		{"empty", []uct.IOV{{Mem: m}}, true},
		{"before", []uct.IOV{{Buf: big[9:20], Mem: m}}, false},
		{"beyond", []uct.IOV{{Buf: big[80:91], Mem: m}}, false},
		{"second", []uct.IOV{{Buf: big[10:11], Mem: m}, {Buf: big[:5], Mem: m}}, false},
	} {
		assert.Equal(t, tc.want, Covers(tc.iov), tc.name)
	}
}

func TestAtomic_AgreesWithTheContract(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		op := uct.AtomicOp(rapid.IntRange(0, int(uct.AtomicSwap)).Draw(t, "op"))
		size := rapid.SampledFrom([]int{4, 8}).Draw(t, "size")
		word, value := rapid.Uint64().Draw(t, "word"), rapid.Uint64().Draw(t, "value")
		pair := [2]uint64{word, 0xdead}
		old, ok := Atomic(unsafe.Pointer(&pair[0]), op, size, value)
		require.True(t, ok)
		mask := ^uint64(0) >> (64 - 8*size)
		require.Equal(t, word&mask, old)
		require.Equal(t, op.Apply(size, word, 0, value), pair[0]&mask)
		require.Equal(t, word&^mask, pair[0]&^mask, "the upper half changed")

		compare := rapid.SampledFrom([]uint64{pair[0], pair[0] + 1}).Draw(t, "compare")
		before := pair[0]
		require.Equal(t, before&mask, CSwap(unsafe.Pointer(&pair[0]), size, compare, value))
		require.Equal(t, uct.AtomicCSwap.Apply(size, before, compare, value), pair[0]&mask)
		require.EqualValues(t, 0xdead, pair[1])
	})
}

func TestAtomic_RefusesWhatItCannot(t *testing.T) {
	var word uint64
	for _, tc := range []struct {
		op   uct.AtomicOp
		size int
	}{{uct.AtomicCSwap, 8}, {uct.AtomicOp(99), 8}, {uct.AtomicAdd, 2}} {
		_, ok := Atomic(unsafe.Pointer(&word), tc.op, tc.size, 1)
		assert.False(t, ok)
	}
	assert.Zero(t, word)
	assert.Equal(t, uct.ErrInvalidParam, CheckAtomic(PostOps, uct.AtomicAdd, 8, 4))
	assert.Equal(t, uct.ErrInvalidParam, CheckAtomic(PostOps, uct.AtomicAdd, 3, 0))
	assert.Equal(t, uct.ErrUnsupported, CheckAtomic(PostOps, uct.AtomicCSwap, 8, 8))
	assert.NoError(t, CheckAtomic(FetchOps, uct.AtomicCSwap, 4, 4))
}

// TestAtomic_IsAtomic increments concurrently with all operations.
func TestAtomic_IsAtomic(t *testing.T) {
	const workers, each = 4, 2000
	var sum, bits atomic.Uint64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				Atomic(unsafe.Pointer(&sum), uct.AtomicAdd, 8, 1)
				Atomic(unsafe.Pointer(&bits), uct.AtomicXor, 8, 1)
				for {
					old := sum.Load()
					if CSwap(unsafe.Pointer(&sum), 8, old, old+1) == old {
						break
					}
				}
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 2*workers*each, sum.Load())
	assert.Zero(t, bits.Load())
}

func TestKey_RoundTripAndRefusals(t *testing.T) {
	const magic = 0x12345678
	for _, index := range []int{0, 1, KeyIndexMask} {
		key := NewKey(index)
		assert.EqualValues(t, index, key&KeyIndexMask)
		assert.NotZero(t, key>>KeyIndexBits)
		packed := PackKey([]byte("x"), magic, key)[1:]
		require.Len(t, packed, KeyLen)
		got, err := UnpackKey(packed, magic)
		require.NoError(t, err)
		assert.Equal(t, key, uint64(got))
		for name, b := range map[string][]byte{
			"short": packed[1:], "long": append(packed, 0), "none": nil, "zero": PackKey(nil, magic, uint64(index)),
			"other magic": PackKey(nil, magic+1, key),
		} {
			_, err := UnpackKey(b, magic)
			assert.ErrorIs(t, err, uct.ErrInvalidRKey, name)
		}
	}
	assert.NotEqual(t, NewKey(1), NewKey(1))
}

func TestKeyIndexes(t *testing.T) {
	var p KeyIndexes
	for want := 1; want <= KeyIndexMask; want++ {
		got, ok := p.Alloc()
		require.True(t, ok)
		require.Equal(t, want, got, "0 is not used")
	}
	_, ok := p.Alloc()
	assert.False(t, ok)
	p.Free(NewKey(77))
	got, ok := p.Alloc()
	assert.True(t, ok)
	assert.Equal(t, 77, got)
	_, ok = p.Alloc()
	assert.False(t, ok)
}

func TestPackShort(t *testing.T) {
	payload := []byte("payload of a message")
	for words := 1; words <= 2; words++ {
		buf := make([]byte, words*8+len(payload))
		PackShort(buf, 1, 2, words, payload)
		assert.Equal(t, []byte{1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0}[:words*8], buf[:words*8])
		assert.Equal(t, payload, buf[words*8:])
	}
}
