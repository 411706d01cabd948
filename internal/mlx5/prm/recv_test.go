package prm

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/uct/ib/verbs"
)

func segs(b []byte) []Seg {
	out := make([]Seg, len(b)/SegLen)
	for i := range out {
		copy(out[i][:], b[i*SegLen:])
	}
	return out
}

func TestEncodeRecv_Golden(t *testing.T) {
	e := make([]Seg, 2)
	e[1] = Seg{0: 0xee, 15: 0xee} // of an earlier round
	EncodeRecv(e, []verbs.SGE{{Addr: 0x7f0000001000, Length: 128, LKey: 0x1000}})
	assert.Equal(t, segs(words(t, "00000080 00001000 00007f00 00001000 · 0 00000100 0 0")), e)
}

func TestEncodeRecv_Shapes(t *testing.T) {
	a := verbs.SGE{Addr: 1, Length: 2, LKey: 3}
	empty := verbs.SGE{Addr: 9, LKey: 9}
	cases := []struct {
		name string
		room int
		in   []verbs.SGE
		want []verbs.SGE
	}{
		{"none", 2, nil, nil},
		{"full list needs no end", 2, []verbs.SGE{a, a}, []verbs.SGE{a, a}},
		{"empty ones are left out", 3, []verbs.SGE{empty, a, empty, a}, []verbs.SGE{a, a}},
		{"never beyond the entry", 1, []verbs.SGE{a, a}, []verbs.SGE{a}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e := make([]Seg, c.room)
			EncodeRecv(e, c.in)
			var got SGList
			n, _, syn := DecodeRecv(e, &got)
			require.Equal(t, SyndromeOK, syn)
			assert.ElementsMatch(t, c.want, got[:n])
		})
	}
}

func TestSRQNext_Golden(t *testing.T) {
	var s Seg
	PutSRQNext(&s, 1)
	assert.Equal(t, segs(words(t, "00000001 0 0 0"))[0], s)
	PutSRQNext(&s, 0xfedc)
	assert.Equal(t, uint16(0xfedc), SRQNext(&s))
}

func TestDecodeRecv_Malformed(t *testing.T) {
	var out SGList
	_, _, syn := DecodeRecv(segs(words(t, "80000001 00001000 0 0")), &out)
	assert.Equal(t, SyndromeLocalQPOp, syn, "bit 31 of the byte count")
	_, _, syn = DecodeRecv(make([]Seg, MaxSGE+1), &out)
	assert.Equal(t, SyndromeLocalQPOp, syn, "more pointers than any WQE has")

	n, total, syn := DecodeRecv(segs(words(t, "00000000 00001000 0 0")), &out)
	assert.Equal(t, SyndromeOK, syn)
	assert.Equal(t, 1, n)
	assert.Equal(t, uint64(1)<<31, total, "0 means 2^31 unless it ends the list")
}

func TestRecv_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		room := rapid.IntRange(1, 32).Draw(t, "room")
		in := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) verbs.SGE {
			return verbs.SGE{Addr: rapid.Uint64().Draw(t, "addr"), Length: rapid.Uint32Range(1, zeroIsLen-1).Draw(t, "len"), LKey: rapid.Uint32().Draw(t, "lkey")}
		}), 0, room).Draw(t, "sges")
		e := make([]Seg, room)
		EncodeRecv(e, in)
		var out SGList
		n, total, syn := DecodeRecv(e, &out)
		require.Equal(t, SyndromeOK, syn)
		require.Equal(t, in, append([]verbs.SGE{}, out[:n]...))
		sum := uint64(0)
		for _, s := range in {
			sum += uint64(s.Length)
		}
		require.Equal(t, sum, total)
	})
}

func FuzzDecodeRecv(f *testing.F) {
	f.Add(words(f, "00000080 00001000 00007f00 00001000 · 0 00000100 0 0"))
	f.Add(words(f, "80000080 00001000 0 0"))
	f.Add(words(f, "0 0 0 0 · 0 0 0 0"))
	f.Fuzz(func(t *testing.T, data []byte) {
		e := segs(data)
		var out SGList
		n, total, syn := DecodeRecv(e, &out)
		if n > len(e) || n > len(out) || (syn != SyndromeOK && n != 0) {
			t.Fatalf("%d pointers of %d, syndrome %#x", n, len(e), syn)
		}
		sum := uint64(0)
		for _, s := range out[:n] {
			if s.Length > zeroIsLen {
				t.Fatalf("length %#x", s.Length)
			}
			sum += uint64(s.Length)
		}
		if syn == SyndromeOK && sum != total {
			t.Fatalf("total %d, sum %d", total, sum)
		}
	})
}

// With fixed IDs an entry that is posted again with its ID is left as it is, also when
// receives end out of order; otherwise it is written again.
func TestPostRecv_Fixed(t *testing.T) {
	for _, fixed := range []bool{true, false} {
		base, mem := newBlock(t, 8*32)
		v, err := NewRQView(base, 8, 5)
		require.NoError(t, err)
		rec, _ := newDBRec(t)
		var q RecvList
		q.Open(v, rec, 0, 0, fixed)
		q.Link()
		wr := func(id uint64) []verbs.RecvWR {
			return []verbs.RecvWR{{ID: id, SGList: []verbs.SGE{{Addr: id << 12, Length: 64, LKey: 7}}}}
		}
		addr := func(entry uint32) uint64 { return be.Uint64(q.Entry(entry)[1][8:]) }
		for id := range uint64(7) {
			_, err := q.PostRecv(wr(id + 1))
			require.NoError(t, err)
		}
		clear(mem[16:32]) // the pointer of entry 0
		require.Equal(t, uint64(1), q.Take(0))
		_, err = q.PostRecv(wr(1)) // into the spare entry
		require.NoError(t, err)
		assert.Equal(t, uint64(1)<<12, addr(7), "another entry is written")
		require.Equal(t, uint64(2), q.Take(1))
		_, err = q.PostRecv(wr(1)) // into entry 0
		require.NoError(t, err)
		assert.Equal(t, fixed, addr(0) == 0, "fixed %v", fixed)
		assert.Equal(t, uint16(9), rec.Recv())
	}
}
