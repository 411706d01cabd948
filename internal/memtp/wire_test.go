package memtp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/uct"
)

func TestID_RoundTripAndNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.Uint64().Draw(t, "id")
		kind := rapid.SampledFrom([]uint32{kindDevice, kindIface, kindEP, kindKey}).Draw(t, "kind")
		b := appendID([]byte("x"), kind, id)[1:]
		require.Len(t, b, idLen)
		got, ok := parseID(b, kind)
		require.True(t, ok)
		require.Equal(t, id, got)
		_, ok = parseID(b, kind+1)
		require.False(t, ok, "another kind")
		bit := rapid.IntRange(0, 8*idLen-1).Draw(t, "bit")
		b[bit/8] ^= 1 << (bit % 8)
		_, ok = parseID(b, kind)
		require.False(t, ok, "bit %d changed", bit)
	})
}

func TestReach_Bounds(t *testing.T) {
	w := NewWorld()
	md, err := w.OpenMD()
	require.NoError(t, err)
	mem, err := md.Ext().Alloc.Alloc(100, uct.AccessRemoteRead)
	require.NoError(t, err)
	key, start := uct.RKey(mem.(*region).id), mem.Addr()
	for _, tc := range []struct {
		name  string
		raddr uint64
		n     int
		need  uct.Access
		want  bool
	}{
		{"all", start, 100, uct.AccessRemoteRead, true},
		{"nothing at the end", start + 100, 0, uct.AccessRemoteRead, true},
		{"last byte", start + 99, 1, uct.AccessRemoteRead, true},
		{"one too many", start, 101, uct.AccessRemoteRead, false},
		{"before", start - 1, 1, uct.AccessRemoteRead, false},
		{"beyond", start + 100, 1, uct.AccessRemoteRead, false},
		{"wraps", ^uint64(0), 2, uct.AccessRemoteRead, false},
		{"no right", start, 1, uct.AccessRemoteWrite, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, w.reach(key, tc.raddr, tc.n, tc.need) != nil)
		})
	}
	require.NoError(t, mem.Close())
	assert.Nil(t, w.reach(key, start, 1, uct.AccessRemoteRead), "after Close")
	require.NoError(t, md.Close())
}
