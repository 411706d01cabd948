package wire

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

func sampleKey() *Key {
	return &Key{
		Region: 7, Addr: 0x1000, Length: 64, Access: uct.AccessAll,
		Parts: []KeyPart{{MD: 0, Key: []byte("ib")}, {MD: 3, Key: []byte{}}},
	}
}

func TestPackedKey_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := &Key{
			Region: rapid.Uint64().Draw(t, "region"),
			Addr:   rapid.Uint64Max(1<<62).Draw(t, "addr"),
			Length: rapid.Uint64Range(1, 1<<40).Draw(t, "length"),
			Access: uct.Access(rapid.IntRange(0, int(uct.AccessAll)).Draw(t, "access")),
		}
		for md := range rapid.IntRange(0, 32).Draw(t, "parts") {
			k.Parts = append(k.Parts, KeyPart{uint8(md), append([]byte{}, rapid.SliceOfN(rapid.Byte(), 0, 255).Draw(t, "key")...)})
		}
		got, err := UnpackKey(k.Append(nil))
		require.NoError(t, err)
		assert.Equal(t, k, got)
	})
}

// keyOfLen is memory whose remote key has so many bytes.
type keyOfLen struct {
	uct.Mem
	n int
}

func (m keyOfLen) PackRKey(b []byte) ([]byte, error) { return append(b, make([]byte, m.n)...), nil }

// TestKey_ExactLimits: the key of a memory domain may have 255 bytes, and the longest packed key has MaxMDs of them.
func TestKey_ExactLimits(t *testing.T) {
	k := &Key{Length: 1}
	require.ErrorIs(t, k.Add(0, keyOfLen{n: math.MaxUint8 + 1}), ucs.ErrTooLong)
	require.Empty(t, k.Parts)
	for md := range wireup.MaxMDs {
		require.NoError(t, k.Add(md, keyOfLen{n: math.MaxUint8}))
	}
	b := k.Append(nil)
	require.Len(t, b, maxKeyLen)
	got, err := UnpackKey(b)
	require.NoError(t, err)
	assert.Equal(t, k, got)
}

func TestUnpackKey_Refuses(t *testing.T) {
	good := sampleKey().Append(nil)
	edit := testenv.Editor(good)
	for _, tc := range []struct {
		name string
		in   []byte
	}{
		{"nothing", nil},
		{"a short header", good[:keyHeader-1]},
		{"another magic", edit(0, 0)},
		{"another version", edit(1, 9)},
		{"unknown rights", edit(2, 0xff)},
		{"too many parts", edit(3, 0xff)},
		{"a part too many", edit(3, 3)},
		{"a part too few", edit(3, 1)},
		{"no bytes", edit(20, 0)},
		{"past the end of memory", edit(27, 0xff)},
		{"a domain twice", edit(keyHeader+4, 0)},
		{"a domain over the limit", edit(keyHeader, 200)},
		{"a long part", edit(keyHeader+1, 0xff)},
		{"a byte too many", append(bytes.Clone(good), 0)},
		{"too long", make([]byte, maxKeyLen+1)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.name == "past the end of memory" {
				for i := 12; i < 20; i++ {
					tc.in[i] = 0xff
				}
			}
			_, err := UnpackKey(tc.in)
			assert.ErrorIs(t, err, ucs.ErrInvalidRKey)
		})
	}
}

func TestPackedKey_Holds(t *testing.T) {
	k := sampleKey()
	for _, tc := range []struct {
		addr, n uint64
		want    bool
	}{
		{0x1000, 64, true}, {0x1000, 65, false}, {0xfff, 1, false}, {0x103f, 1, true},
		{0x1040, 0, true}, {0x1040, 1, false}, {0x1041, 0, false}, {0x1000, ^uint64(0), false},
		{^uint64(0), 2, false},
	} {
		assert.Equal(t, tc.want, k.Contains(tc.addr, tc.n), "%#x+%d", tc.addr, tc.n)
	}
}

func TestMessages_RoundTrip(t *testing.T) {
	req := Request{Op: uct.AtomicXor, Size: 4, EP: 1, ID: 2, Region: 3, Addr: 4, Value: 5, Compare: 6}
	b := req.Append(nil)
	var gotReq Request
	require.True(t, gotReq.Unpack(b))
	assert.Equal(t, req, gotReq)
	assert.False(t, gotReq.Unpack(b[1:]))

	ans := Answer{Status: ucs.StatusRemoteAccess, EP: 1, ID: 2, Value: 3}
	b = ans.Append(nil)
	var gotAns Answer
	require.True(t, gotAns.Unpack(b))
	assert.Equal(t, ans, gotAns)
	assert.False(t, gotAns.Unpack(append(b, 0)))
	note := Notify{EP: 1, Word: 2}
	var gotNote Notify
	require.True(t, gotNote.Unpack(note.Append(nil)))
	assert.Equal(t, note, gotNote)
	assert.False(t, gotNote.Unpack(b))

	b[0] = 0x7f
	require.True(t, gotAns.Unpack(b))
	assert.Equal(t, ucs.StatusInternal, gotAns.Status, "an unknown status")
}

func FuzzUnpackKey(f *testing.F) {
	f.Add(sampleKey().Append(nil))
	k := sampleKey()
	k.Parts = nil
	f.Add(k.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := UnpackKey(b)
		if err != nil {
			assert.ErrorIs(t, err, ucs.ErrInvalidRKey)
			return
		}
		assert.Equal(t, b, k.Append(nil), "a key has one packed form")
	})
}
