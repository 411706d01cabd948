package verbs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/ucs"
)

func TestParseGID(t *testing.T) {
	cases := []struct {
		in   string
		want GID
	}{
		{"fe80:0000:0000:0000:0000:0000:0000:00aa", GID{0xfe, 0x80, 15: 0xaa}},
		{"fe80::aa", GID{0xfe, 0x80, 15: 0xaa}},
		{"10.0.0.1", GID{10: 0xff, 11: 0xff, 12: 10, 15: 1}},
		{"::", GID{}},
	}
	for _, c := range cases {
		got, err := ParseGID(c.in)
		require.NoError(t, err)
		assert.Equal(t, c.want, got)
	}
	for _, in := range []string{"", "x", "fe80::1%eth0", "fe80", "1.2.3"} {
		_, err := ParseGID(in)
		assert.ErrorIs(t, err, ucs.ErrInvalidAddr, "%q", in)
	}
	assert.True(t, GID{}.IsZero())
	assert.False(t, GID{15: 1}.IsZero())
}

func TestGID_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g GID
		copy(g[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "gid"))
		got, err := ParseGID(g.String())
		require.NoError(t, err)
		require.Equal(t, g, got)
	})
}

func FuzzParseGID(f *testing.F) {
	for _, s := range []string{"fe80::1", "1.2.3.4", "::ffff:1.2.3.4", "%", "fe80::1%x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		g, err := ParseGID(s)
		if err != nil {
			return
		}
		if back, err := ParseGID(g.String()); err != nil || back != g {
			t.Fatalf("%q: %v, %v", s, g, back)
		}
	})
}
