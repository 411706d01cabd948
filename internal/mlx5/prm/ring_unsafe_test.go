package prm

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/offheap"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// newBlock is zeroed memory aligned to 64 bytes, freed with the test.
func newBlock(t testing.TB, n int) (unsafe.Pointer, []byte) {
	t.Helper()
	b, err := offheap.Alloc(n)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Free() })
	mem := b.Bytes()
	return unsafe.Pointer(unsafe.SliceData(mem)), mem[:n]
}

// newSQ is a send ring of count BBs and its memory.
func newSQ(t testing.TB, count, qpn uint32, typ verbs.QPType) (SQView, []byte) {
	t.Helper()
	p, mem := newBlock(t, int(count)*BBLen)
	v, err := NewSQView(p, count, qpn, typ)
	require.NoError(t, err)
	return v, mem
}

func newCQ(t testing.TB, count uint32) (CQView, []byte) {
	t.Helper()
	p, mem := newBlock(t, int(count)*CQELen)
	v, err := NewCQView(p, count)
	require.NoError(t, err)
	return v, mem
}

func newDBRec(t testing.TB) (DBRec, []byte) {
	t.Helper()
	p, mem := newBlock(t, dbRecLen)
	return NewDBRec(p), mem
}

func TestViews_BadRing(t *testing.T) {
	base, _ := newBlock(t, 4096)
	cases := []struct {
		name  string
		base  unsafe.Pointer
		count uint32
	}{
		{"nil", nil, 8},
		{"misaligned", unsafe.Add(base, 8), 8},
		{"zero", base, 0},
		{"not a power of two", base, 12},
		{"too long", base, 1 << 23},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := NewSQView(c.base, c.count, 1, verbs.QPTypeRC)
			require.ErrorIs(t, err, ucs.ErrInvalidParam)
			_, err = NewRQView(c.base, c.count, 4)
			require.ErrorIs(t, err, ucs.ErrInvalidParam)
			_, err = NewCQView(c.base, c.count)
			require.ErrorIs(t, err, ucs.ErrInvalidParam)
		})
	}
	for _, stride := range []uint8{0, 3, 13} {
		_, err := NewRQView(base, 8, stride)
		require.ErrorIs(t, err, ucs.ErrInvalidParam)
	}
}

func TestViews_MaskIndex(t *testing.T) {
	sq, mem := newSQ(t, 4, 1, verbs.QPTypeRC)
	for i := range uint32(20) {
		sq.BB(i)[0] = byte(i)
		require.Equal(t, byte(i), mem[i%4*BBLen])
		sq.seg(i)[1] = byte(i)
		require.Equal(t, byte(i), mem[i%16*SegLen+1])
	}
	base, rmem := newBlock(t, 8*32)
	rq, err := NewRQView(base, 8, 5)
	require.NoError(t, err)
	require.Equal(t, uint32(8), rq.Count())
	for i := range uint32(20) {
		e := rq.Entry(i)
		require.Len(t, e, 2)
		e[1][15] = byte(i)
		require.Equal(t, byte(i), rmem[i%8*32+31])
	}
	cq, cmem := newCQ(t, 2)
	cq.Slot(5).body[3] = 9
	require.Equal(t, byte(9), cmem[CQELen+3])
	require.Equal(t, []uint8{0, 0, 1, 1, 0}, []uint8{cq.Owner(0), cq.Owner(1), cq.Owner(2), cq.Owner(3), cq.Owner(4)})
}

// slotBytes is an entry of a completion queue as it lies in memory.
func slotBytes(s *CQESlot) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(s)), CQELen) }

// What is loaded and stored with release and acquire is aligned by its type: these
// instructions fault on arm64 otherwise, wherever a test or a user puts it.
func TestAlignment(t *testing.T) {
	var s CQESlot
	assert.EqualValues(t, 8, unsafe.Alignof(s))
	assert.EqualValues(t, CQELen, unsafe.Sizeof(s))
	assert.EqualValues(t, CQELen-4, unsafe.Offsetof(s.tail))
	assert.EqualValues(t, 4, unsafe.Alignof(RecvRing{}.tail))
	odd := struct { // as unlucky as a type can be
		_ [3]byte
		s CQESlot
	}{}
	odd.s.Init()
	assert.Equal(t, CQEInvalid, odd.s.Tail().Opcode())
	assert.Zero(t, uintptr(unsafe.Pointer(&odd.s))%8)
}
