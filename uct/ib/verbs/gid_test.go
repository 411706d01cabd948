package verbs

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestGID_IsZero(t *testing.T) {
	assert.True(t, GID{}.IsZero())
	assert.False(t, GID{15: 1}.IsZero())
}

// A GID is written as the IPv6 address that it is.
func TestGID_String(t *testing.T) {
	assert.Equal(t, "fe80:0000:0000:0000:0000:0000:0000:00aa", GID{0xfe, 0x80, 15: 0xaa}.String())
	rapid.Check(t, func(t *rapid.T) {
		var g GID
		copy(g[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "gid"))
		a, err := netip.ParseAddr(g.String())
		require.NoError(t, err)
		require.Equal(t, g, GID(a.As16()))
	})
}

func TestChooseGID(t *testing.T) {
	v4, v6 := GID{10: 0xff, 11: 0xff, 12: 10, 15: 1}, GID{0: 0xfe, 1: 0x80, 15: 1}
	entry := func(i uint8, gid GID, typ GIDType) GIDEntry {
		return GIDEntry{GID: gid, Index: i, Type: typ}
	}
	all := []GIDEntry{
		entry(0, v6, GIDRoCEv1), entry(1, v6, GIDRoCEv2), entry(2, v4, GIDRoCEv1),
		entry(3, v4, GIDRoCEv2), entry(9, v4, GIDRoCEv2),
	}
	for _, c := range []struct {
		list []GIDEntry
		want uint8
	}{{all, 3}, {all[:3], 1}, {[]GIDEntry{all[0], all[2]}, 2}, {all[:1], 0}} {
		got, ok := ChooseGID(c.list)
		assert.True(t, ok)
		assert.Equal(t, c.want, got.Index)
	}
	for _, list := range [][]GIDEntry{nil, {entry(0, v4, GIDInfiniBand)}} {
		_, ok := ChooseGID(list)
		assert.False(t, ok)
	}
}
