package timing

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
)

func TestParams_Set(t *testing.T) {
	p := ConnectX4()
	require.NoError(t, p.Set("registerwrite", "12.5"))
	require.NoError(t, p.Set("Rails", "3"))
	require.NoError(t, p.Set("PCIeBandwidth", "1000"))
	want := ConnectX4()
	want.RegisterWrite, want.Rails, want.PCIeBandwidth = 12500*Picosecond, 3, 1000
	assert.Equal(t, want, p)

	for name, bad := range map[string][2]string{
		"no such name": {"Speed", "1"},
		"no number":    {"RegisterWrite", "fast"},
		"not finite":   {"RegisterWrite", "NaN"},
		"too long":     {"RegisterWrite", "1e12"},
		"not whole":    {"Rails", "2.5"},
		"empty value":  {"Rails", ""},
	} {
		err := p.Set(bad[0], bad[1])
		require.ErrorIs(t, err, ucs.ErrInvalidParam, name)
		assert.ErrorContains(t, err, bad[0], name)
	}
	assert.ErrorContains(t, p.Set("Speed", "1"), "RailLookup")
	assert.Equal(t, want, p, "a failed Set must not change parameters")
}
