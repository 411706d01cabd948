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
