package data

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// source is a Packer of bytes that writes at most step bytes in a call.
type source struct {
	bytes []byte
	step  int
	calls int
}

func (s *source) Length() int { return len(s.bytes) }

func (s *source) PackAt(off int, dst []byte) int {
	s.calls++
	return copy(dst[:min(len(dst), s.step)], s.bytes[off:])
}

// sink is an Unpacker of up to room bytes.
type sink struct {
	bytes    []byte
	room     int
	offs     []int
	finished []error
	last     error // result of Finish for a complete message
}

func (s *sink) UnpackAt(off int, src []byte) error {
	s.offs = append(s.offs, off)
	if len(src) > s.room-len(s.bytes) {
		return ucs.ErrTruncated
	}
	s.bytes = append(s.bytes, src...)
	return nil
}

func (s *sink) Finish(err error) error {
	s.finished = append(s.finished, err)
	if err == nil {
		return s.last
	}
	return err
}

// numbered returns n bytes that differ from their neighbors.
func numbered(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

// cut returns b in pieces of the given lengths; the rest is the last piece.
func cut(b []byte, lens []int) (list [][]byte) {
	for _, n := range lens {
		n = min(n, len(b))
		list = append(list, b[:n:n])
		b = b[n:]
	}
	return append(list, b)
}

// lengths draws lengths of pieces, many of them empty.
func lengths() *rapid.Generator[[]int] {
	return rapid.SliceOfN(rapid.OneOf(rapid.Just(0), rapid.IntRange(0, 3), rapid.IntRange(0, 40)), 0, 12)
}

// TestBuffer_IsItsConcatenation: for any pieces, and any order of ranges, a Buffer behaves like one slice.
func TestBuffer_IsItsConcatenation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		model := numbered(rapid.IntRange(0, 150).Draw(t, "length"))
		list := cut(slices.Clone(model), lengths().Draw(t, "pieces"))
		b := List(list)
		if rapid.Bool().Draw(t, "contiguous") {
			b = Bytes(slices.Concat(list...))
		}
		require.NoError(t, b.Validate())
		require.Equal(t, len(model), b.Len())
		require.False(t, b.Generic())
		t.Repeat(map[string]func(*rapid.T){
			"pack":     func(t *rapid.T) { checkPack(t, &b, model) },
			"unpack":   func(t *rapid.T) { checkUnpack(t, &b, model) },
			"slices":   func(t *rapid.T) { checkSlices(t, &b, model) },
			"sequence": func(t *rapid.T) { checkSequence(t, &b, model) },
		})
	})
}

// offset draws an offset into n bytes, or one outside.
func offset(t *rapid.T, n int) int {
	return rapid.OneOf(rapid.IntRange(0, n), rapid.IntRange(0, n), rapid.IntRange(-3, n+3),
		rapid.SampledFrom([]int{math.MinInt, math.MaxInt})).Draw(t, "offset")
}

func checkPack(t *rapid.T, b *Buffer, model []byte) {
	off, dst := offset(t, len(model)), make([]byte, rapid.IntRange(0, 60).Draw(t, "dst"))
	n, err := b.Pack(off, dst)
	if off < 0 || off > len(model) {
		require.ErrorIs(t, err, ucs.ErrInvalidParam)
		require.Zero(t, n)
		return
	}
	require.NoError(t, err)
	require.Equal(t, min(len(dst), len(model)-off), n)
	require.True(t, bytes.Equal(model[off:off+n], dst[:n]))
}

func checkUnpack(t *rapid.T, b *Buffer, model []byte) {
	off, src := offset(t, len(model)), rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "src")
	n, err := b.Unpack(off, src)
	if off < 0 {
		require.ErrorIs(t, err, ucs.ErrInvalidParam)
		require.Zero(t, n)
		return
	}
	fit := 0
	if off < len(model) {
		fit = copy(model[off:], src)
	}
	require.Equal(t, fit, n)
	if fit < len(src) {
		require.ErrorIs(t, err, ucs.ErrTruncated)
	} else {
		require.NoError(t, err)
	}
	all := make([]byte, len(model))
	_, err = b.Pack(0, all)
	require.NoError(t, err)
	require.True(t, bytes.Equal(model, all), "the rest has not changed")
}

func checkSlices(t *rapid.T, b *Buffer, model []byte) {
	off, most := offset(t, len(model)), rapid.IntRange(-1, 200).Draw(t, "most")
	iov := make([]uct.IOV, rapid.IntRange(0, 6).Draw(t, "room"))
	count, total := b.Slices(off, most, iov)
	if off < 0 || off > len(model) || most < 0 {
		require.Zero(t, count+total)
		return
	}
	want := min(most, len(model)-off)
	require.True(t, total == want || total < want && count == len(iov), "%d of %d in %d of %d", total, want, count, len(iov))
	require.Equal(t, total, uct.IOVLen(iov[:count]))
	for _, v := range iov[:count] {
		require.NotEmpty(t, v.Buf)
		require.True(t, bytes.Equal(model[off:off+len(v.Buf)], v.Buf))
		off += len(v.Buf)
	}
}

// checkSequence packs all bytes in fragments.
func checkSequence(t *rapid.T, b *Buffer, model []byte) {
	dst := make([]byte, rapid.IntRange(1, 60).Draw(t, "fragment"))
	var got []byte
	for len(got) < len(model) {
		n, err := b.Pack(len(got), dst)
		require.NoError(t, err)
		require.Positive(t, n)
		got = append(got, dst[:n]...)
	}
	require.True(t, bytes.Equal(model, got))
}

// TestBuffer_SlicesAreTheMemory: writes to the result of Slices change the memory.
func TestBuffer_SlicesAreTheMemory(t *testing.T) {
	memory := make([]byte, 10)
	b := List(cut(memory, []int{4, 0, 3}))
	var iov [4]uct.IOV
	count, total := b.Slices(2, 7, iov[:])
	require.Equal(t, []int{3, 7}, []int{count, total})
	for i, v := range iov[:count] {
		for j := range v.Buf {
			v.Buf[j] = byte(i + 1)
		}
	}
	assert.Equal(t, []byte{0, 0, 1, 1, 2, 2, 2, 3, 3, 0}, memory)
}

// TestBuffer_CursorStaysWhereAFragmentEnds: so the next fragment needs no search.
func TestBuffer_CursorStaysWhereAFragmentEnds(t *testing.T) {
	const pieces, each = 1000, 3
	b := List(cut(numbered(pieces*each), slices.Repeat([]int{each}, pieces-1)))
	dst := make([]byte, 7)
	for off := 0; off < b.Len(); off += len(dst) {
		n, err := b.Pack(off, dst)
		require.NoError(t, err)
		require.Equal(t, (off+n-1)/each, b.index)
		require.Equal(t, b.index*each, b.start)
	}
	_, err := b.Pack(each, dst[:1])
	require.NoError(t, err)
	assert.Equal(t, 1, b.index, "and it goes back")
}

func TestContiguous(t *testing.T) {
	whole := numbered(9)
	for name, tc := range map[string]struct {
		b    Buffer
		want []byte
		ok   bool
	}{
		"zero":              {Buffer{}, nil, true},
		"bytes":             {Bytes(whole), whole, true},
		"empty list":        {List(nil), nil, true},
		"list of nothing":   {List([][]byte{{}, nil}), nil, true},
		"list of one":       {List(net.Buffers{nil, whole, {}}), whole, true},
		"list of two":       {List(cut(whole, []int{4})), nil, false},
		"generic":           {From(&source{bytes: whole}), nil, false},
		"generic, received": {To(&sink{}), nil, false},
		"invalid":           {To(nil), nil, false},
	} {
		got, ok := tc.b.Contiguous()
		assert.Equal(t, tc.ok, ok, name)
		assert.Equal(t, tc.want, got, name)
	}
	b := List(net.Buffers{nil, whole, {}})
	got, _ := b.Contiguous()
	got[0] = 77
	assert.Equal(t, byte(77), whole[0], "the memory, not a copy")
}

// negative is a Packer with a negative length.
type negative struct{ *source }

func (negative) Length() int { return math.MinInt }

func TestValidate(t *testing.T) {
	huge := forged(make([]byte, 1), math.MaxInt)
	fits := List([][]byte{huge[:math.MaxInt-1], {1}})
	require.NoError(t, fits.Validate())
	assert.Equal(t, math.MaxInt, fits.Len())
	for name, b := range map[string]Buffer{
		"too long":        List([][]byte{huge, {1}}),
		"negative length": From(negative{}),
		"no packer":       From(nil),
		"no unpacker":     To(nil),
	} {
		assert.ErrorIs(t, b.Validate(), ucs.ErrInvalidParam, name)
		assert.Negative(t, b.Len(), name)
		_, err := b.Pack(0, make([]byte, 1))
		assert.ErrorIs(t, err, ucs.ErrInvalidParam, name)
		_, err = b.Unpack(0, make([]byte, 1))
		assert.ErrorIs(t, err, ucs.ErrInvalidParam, name)
		count, _ := b.Slices(0, 1, make([]uct.IOV, 1))
		assert.Zero(t, count, name)
	}
}

// TestBuffer_ListThatTheCallerChanged: if the caller changes a list in use, calls fail; they neither hang nor panic.
func TestBuffer_ListThatTheCallerChanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := cut(numbered(60), rapid.SliceOfN(rapid.IntRange(1, 9), 2, 6).Draw(t, "pieces"))
		b := List(list)
		var iov [8]uct.IOV
		for range rapid.IntRange(1, 10).Draw(t, "steps") {
			i := rapid.IntRange(0, len(list)-1).Draw(t, "piece")
			list[i] = numbered(rapid.IntRange(0, 12).Draw(t, "now"))
			off, n := rapid.IntRange(0, 60).Draw(t, "offset"), rapid.IntRange(0, 60).Draw(t, "n")
			_, _ = b.Pack(off, make([]byte, n))
			_, _ = b.Unpack(off, make([]byte, n))
			count, total := b.Slices(off, n, iov[:])
			require.Equal(t, total, uct.IOVLen(iov[:count]))
		}
	})
	list := [][]byte{{1}, {2}}
	b := List(list)
	list[1] = nil
	n, err := b.Pack(0, make([]byte, 2))
	assert.Equal(t, 1, n)
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	n, err = b.Unpack(0, make([]byte, 2))
	assert.Equal(t, 1, n)
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
}

// TestGeneric_InOrder: fragments of any lengths pass the data of the Packer to the Unpacker.
func TestGeneric_InOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := &source{bytes: numbered(rapid.IntRange(0, 200).Draw(t, "length")), step: rapid.IntRange(1, 30).Draw(t, "step")}
		to := &sink{room: len(from.bytes)}
		a, b := From(from), To(to)
		require.True(t, a.Generic() && b.Generic())
		require.Equal(t, len(from.bytes), a.Len())
		off := 0
		for off < a.Len() {
			fragment := make([]byte, rapid.IntRange(0, 50).Draw(t, "fragment"))
			n, err := a.Pack(off, fragment)
			require.NoError(t, err)
			require.Equal(t, min(len(fragment), a.Len()-off), n)
			got, err := b.Unpack(off, fragment[:n])
			require.NoError(t, err)
			require.Equal(t, n, got)
			off += n
		}
		require.NoError(t, b.Finish(nil))
		require.True(t, bytes.Equal(from.bytes, to.bytes))
		require.Equal(t, []error{nil}, to.finished)
	})
}

func TestGeneric_RefusesOtherOrders(t *testing.T) {
	from, to := &source{bytes: numbered(20), step: 20}, &sink{room: 20}
	a, b := From(from), To(to)
	fragment := make([]byte, 5)
	_, err := a.Pack(0, fragment)
	require.NoError(t, err)
	_, err = b.Unpack(0, fragment)
	require.NoError(t, err)
	for _, off := range []int{0, 4, 6, -5, 21, math.MaxInt, math.MinInt} {
		n, err := a.Pack(off, fragment)
		assert.ErrorIs(t, err, ucs.ErrInvalidParam, "%d", off)
		assert.Zero(t, n)
		n, err = b.Unpack(off, fragment)
		assert.ErrorIs(t, err, ucs.ErrInvalidParam, "%d", off)
		assert.Zero(t, n)
	}
	assert.Equal(t, 1, from.calls)
	assert.Equal(t, []int{0}, to.offs)
	n, err := a.Pack(5, fragment)
	assert.NoError(t, err, "a rejected call changes nothing")
	assert.Equal(t, 5, n)
	_, err = b.Unpack(5, fragment)
	assert.NoError(t, err)
	assert.Equal(t, numbered(5), to.bytes[:5])
}

func TestGeneric_OneDirection(t *testing.T) {
	a, b := From(&source{bytes: numbered(3), step: 3}), To(&sink{room: 3})
	_, err := a.Unpack(0, []byte{1})
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	_, err = b.Pack(0, make([]byte, 1))
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	count, total := a.Slices(0, 3, make([]uct.IOV, 1))
	assert.Zero(t, count+total)
	count, total = b.Slices(0, 3, make([]uct.IOV, 1))
	assert.Zero(t, count+total)
}

// fixed is a Packer of 10 bytes whose calls return invalid results.
type fixed int

func (fixed) Length() int                    { return 10 }
func (f fixed) PackAt(_ int, dst []byte) int { return int(f) }

func TestGeneric_PackerThatBreaksItsContract(t *testing.T) {
	for _, returns := range []int{0, -1, 9, math.MaxInt} {
		b := From(fixed(returns))
		n, err := b.Pack(0, make([]byte, 8))
		assert.ErrorIs(t, err, ucs.ErrInvalidParam, "%d", returns)
		assert.Zero(t, n)
		_, err = b.Pack(0, make([]byte, 8))
		assert.ErrorIs(t, err, ucs.ErrInvalidState, "%d", returns)
	}
}

func TestGeneric_ErrorOfTheUnpackerEndsIt(t *testing.T) {
	to := &sink{room: 5}
	b := To(to)
	_, err := b.Unpack(0, numbered(4))
	require.NoError(t, err)
	n, err := b.Unpack(4, numbered(4))
	assert.ErrorIs(t, err, ucs.ErrTruncated)
	assert.Zero(t, n)
	for _, off := range []int{4, 8, -1, -2, math.MaxInt} {
		n, err = b.Unpack(off, numbered(1))
		assert.Error(t, err, "%d", off)
		assert.Zero(t, n)
	}
	assert.Len(t, to.offs, 2, "it is not called any more")
	assert.ErrorIs(t, b.Finish(ucs.ErrTruncated), ucs.ErrTruncated)
	assert.Equal(t, []error{ucs.ErrTruncated}, to.finished)
}

func TestFinish(t *testing.T) {
	incomplete := errors.New("object is incomplete")
	to := &sink{last: incomplete}
	b := To(to)
	assert.ErrorIs(t, b.Finish(nil), incomplete, "the result of the Unpacker counts")
	assert.ErrorIs(t, b.Finish(ucs.ErrCanceled), ucs.ErrCanceled)
	assert.Len(t, to.finished, 1, "once")
	for _, off := range []int{0, -1, -2, math.MaxInt} {
		n, err := b.Unpack(off, numbered(1))
		assert.Error(t, err, "%d", off)
		assert.Zero(t, n)
	}
	assert.Empty(t, to.offs)

	b = Bytes(make([]byte, 3))
	assert.NoError(t, b.Finish(nil))
	assert.ErrorIs(t, b.Finish(ucs.ErrTruncated), ucs.ErrTruncated)
}

// FuzzUnpack: a peer chooses offsets and lengths.
func FuzzUnpack(f *testing.F) {
	f.Add([]byte{3, 0, 5}, 2, []byte("fragment"), 7, []byte("x"))
	f.Add([]byte{}, -1, []byte{}, math.MaxInt, []byte("ab"))
	f.Add([]byte{1, 1, 1}, math.MinInt, []byte("a"), 0, []byte("abcd"))
	f.Fuzz(func(t *testing.T, lens []byte, off1 int, src1 []byte, off2 int, src2 []byte) {
		var list [][]byte
		for _, n := range lens {
			list = append(list, make([]byte, n))
		}
		b := List(list)
		model := make([]byte, b.Len())
		for _, part := range []struct {
			off int
			src []byte
		}{{off1, src1}, {off2, src2}, {off1, src2}} {
			n, _ := b.Unpack(part.off, part.src)
			if part.off >= 0 && part.off < len(model) {
				require.Equal(t, copy(model[part.off:], part.src), n)
			} else {
				require.Zero(t, n)
			}
		}
		require.True(t, bytes.Equal(model, slices.Concat(list...)))
	})
}

// TestBuffer_Size: each request has a Buffer.
func TestBuffer_Size(t *testing.T) {
	const words = 3 + 2*3 + 2*2 // the cursor and the length, two slices, two interfaces
	assert.Equal(t, uintptr(words*8), reflect.TypeOf(Buffer{}).Size())
}

func TestBuffer_NoAllocs(t *testing.T) {
	memory := numbered(1 << 10)
	list := cut(memory, slices.Repeat([]int{50}, 20))
	fragment, iov := make([]byte, 128), make([]uct.IOV, 4)
	from, to := &source{bytes: memory, step: 50}, &drain{}
	held := new(Buffer) // as in a request of a pool
	for name, start := range map[string]func(){
		"contiguous": func() { *held = Bytes(memory) },
		"list":       func() { *held = List(list) },
		"packer":     func() { *held = From(from) },
	} {
		testenv.NoAllocs(t, name, func() {
			start()
			for off := 0; off < held.Len(); off += len(fragment) {
				_, _ = held.Pack(off, fragment)
				_, _ = held.Slices(off, len(fragment), iov)
			}
		})
	}
	for name, start := range map[string]func(){
		"contiguous": func() { *held = Bytes(memory) },
		"list":       func() { *held = List(list) },
		"unpacker":   func() { *held = To(to) },
	} {
		testenv.NoAllocs(t, name, func() {
			start()
			for off := 0; off < len(memory); off += len(fragment) {
				_, _ = held.Unpack(off, fragment)
			}
			_, _ = held.Unpack(len(memory), fragment) // truncated
			_ = held.Finish(nil)
		})
	}
}

// drain is an Unpacker that ignores all data.
type drain struct{ n int }

func (d *drain) UnpackAt(_ int, src []byte) error { d.n += len(src); return nil }
func (d *drain) Finish(err error) error           { return err }

// BenchmarkUnpack unpacks fragments of 64 bytes in order: the time must not depend on the length of a list.
func BenchmarkUnpack(b *testing.B) {
	const each = 64
	for _, pieces := range []int{1, 16, 4096} {
		b.Run(fmt.Sprintf("pieces=%d", pieces), func(b *testing.B) {
			first := List(cut(numbered(pieces*each), slices.Repeat([]int{each}, pieces-1)))
			buf, src, off := first, numbered(each), 0
			b.SetBytes(each)
			for b.Loop() {
				if _, err := buf.Unpack(off, src); err != nil {
					b.Fatal(err)
				}
				if off += each; off == buf.Len() {
					off, buf = 0, first
				}
			}
		})
	}
}
