package targetop

import (
	"encoding/binary"
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

func TestOffset(t *testing.T) {
	for _, tc := range []struct {
		name        string
		length      int
		addr, raddr uint64
		n, want     int
		ok          bool
	}{
		{"whole", 100, 1000, 1000, 100, 0, true},
		{"part", 100, 1000, 1010, 90, 10, true},
		{"none at the end", 100, 1000, 1100, 0, 100, true},
		{"none beyond", 100, 1000, 1101, 0, 0, false},
		{"before", 100, 1000, 999, 1, 0, false},
		{"one too many", 100, 1000, 1010, 91, 0, false},
		{"wraps around", 100, 1000, math.MaxUint64, 2, 0, false},
		{"negative", 100, 1000, 1000, -1, 0, false},
		{"at the end of addresses", 100, math.MaxUint64 - 99, math.MaxUint64, 1, 99, true},
		{"beyond the end of addresses", 100, math.MaxUint64 - 99, 0, 1, 0, false},
	} {
		off, ok := Offset(tc.length, tc.addr, tc.raddr, tc.n)
		assert.Equal(t, tc.ok, ok, tc.name)
		if tc.ok {
			assert.Equal(t, tc.want, off, tc.name)
		}
	}
}

// words is memory that is aligned to 8 bytes.
func words(n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(make([]uint64, n)))), 8*n)
}

// TestAtomic_AgreesWithTheContract: every operation does what uct.AtomicOp.Apply says, and
// nothing beside.
func TestAtomic_AgreesWithTheContract(t *testing.T) {
	const addr = 0x7000
	rapid.Check(t, func(t *rapid.T) {
		a := Atomic{
			Op: uct.AtomicOp(rapid.IntRange(0, int(uct.AtomicCSwap)).Draw(t, "op")), Size: rapid.SampledFrom([]int{4, 8}).Draw(t, "size"),
			Value: rapid.Uint64().Draw(t, "value"), Compare: rapid.Uint64Range(0, 1).Draw(t, "compare"),
		}
		mem, want := words(4), words(4)
		at := rapid.IntRange(0, len(mem)/a.Size-1).Draw(t, "at") * a.Size
		a.Raddr = addr + uint64(at)
		binary.NativeEndian.PutUint32(mem[at:], rapid.Uint32Range(0, 3).Draw(t, "old"))
		copy(want, mem)
		var before uint64
		if a.Size == 4 {
			before = uint64(binary.NativeEndian.Uint32(want[at:]))
			binary.NativeEndian.PutUint32(want[at:], uint32(a.Op.Apply(4, before, a.Compare, a.Value)))
		} else {
			before = binary.NativeEndian.Uint64(want[at:])
			binary.NativeEndian.PutUint64(want[at:], a.Op.Apply(8, before, a.Compare, a.Value))
		}
		old, st := a.Do(mem, addr)
		require.Equal(t, ucs.StatusOK, st)
		require.Equal(t, before, old)
		require.Equal(t, want, mem)
	})
}

func TestAtomic_Refuses(t *testing.T) {
	const addr = 0x7000
	good := Atomic{Op: uct.AtomicAdd, Size: 8, Raddr: addr + 8, Value: 1}
	for _, tc := range []struct {
		name string
		edit func(*Atomic)
		mem  []byte
		want ucs.Status
	}{
		{"size", func(a *Atomic) { a.Size = 2 }, words(4), ucs.StatusRemoteInvalid},
		{"no size", func(a *Atomic) { a.Size = 0 }, words(4), ucs.StatusRemoteInvalid},
		{"op", func(a *Atomic) { a.Op = 99 }, words(4), ucs.StatusRemoteInvalid},
		{"address", func(a *Atomic) { a.Raddr += 4 }, words(4), ucs.StatusRemoteInvalid},
		{"memory", func(*Atomic) {}, words(4)[4:], ucs.StatusRemoteInvalid},
		{"before", func(a *Atomic) { a.Raddr = addr - 8 }, words(4), ucs.StatusRemoteAccess},
		{"beyond", func(a *Atomic) { a.Raddr = addr + 32 }, words(4), ucs.StatusRemoteAccess},
		{"half", func(*Atomic) {}, words(4)[:12], ucs.StatusRemoteAccess},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := good
			tc.edit(&a)
			_, st := a.Do(tc.mem, addr)
			assert.Equal(t, tc.want, st)
			assert.Equal(t, make([]byte, len(tc.mem)), tc.mem)
		})
	}
}

func TestAtomic_NoAllocs(t *testing.T) {
	mem := words(1)
	a := Atomic{Op: uct.AtomicXor, Size: 8, Raddr: 8, Value: 1}
	testenv.NoAllocs(t, "atomic", func() { a.Do(mem, 8) })
}

func BenchmarkAtomic(b *testing.B) {
	b.ReportAllocs()
	mem := words(1)
	a := Atomic{Op: uct.AtomicAdd, Size: 8, Raddr: 8, Value: 1}
	for b.Loop() {
		a.Do(mem, 8)
	}
}
