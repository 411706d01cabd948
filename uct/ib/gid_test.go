package ib

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs"
)

func TestGIDIndex_Text(t *testing.T) {
	for text, want := range map[string]GIDIndex{"auto": GIDAuto, "0": GIDAt(0), "255": GIDAt(255)} {
		var g GIDIndex
		require.NoError(t, g.UnmarshalText([]byte(text)))
		assert.Equal(t, want, g)
		assert.Equal(t, text, g.String())
	}
	for _, bad := range []string{"", "256", "-1", "Auto", "1x"} {
		var g GIDIndex
		assert.ErrorIs(t, g.UnmarshalText([]byte(bad)), uct.ErrInvalidParam, bad)
	}
}

func TestChooseGID(t *testing.T) {
	v4, v6 := verbs.GID{10: 0xff, 11: 0xff, 12: 10, 15: 1}, verbs.GID{0: 0xfe, 1: 0x80, 15: 1}
	entry := func(i uint8, gid verbs.GID, typ verbs.GIDType) verbs.GIDEntry {
		return verbs.GIDEntry{GID: gid, Index: i, Type: typ}
	}
	all := []verbs.GIDEntry{
		entry(0, v6, verbs.GIDRoCEv1), entry(1, v6, verbs.GIDRoCEv2), entry(2, v4, verbs.GIDRoCEv1),
		entry(3, v4, verbs.GIDRoCEv2), entry(9, v4, verbs.GIDRoCEv2),
	}
	for _, c := range []struct {
		list []verbs.GIDEntry
		want uint8
	}{{all, 3}, {all[:3], 1}, {[]verbs.GIDEntry{all[0], all[2]}, 2}, {all[:1], 0}} {
		got, err := chooseGID(c.list)
		require.NoError(t, err)
		assert.Equal(t, c.want, got.Index)
	}
	for _, list := range [][]verbs.GIDEntry{nil, {entry(0, v4, verbs.GIDInfiniBand)}} {
		_, err := chooseGID(list)
		assert.ErrorIs(t, err, uct.ErrUnreachable)
	}
}
