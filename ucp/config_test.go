package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs/config"
)

// TestConfig_Lengths: lengths have units, and the ends of the grammar mean what they say.
func TestConfig_Lengths(t *testing.T) {
	for _, c := range []struct {
		value               string
		rndv, zcopy         int
		window, budgetBytes int64
	}{
		{"auto", defaultRndvThresh, 0, defaultEagerWindow, defaultEagerBudget},
		{"0", 1, 1, 0, 0},
		{"100", 100, 100, 100, 100},
		{"64k", 64 << 10, 64 << 10, 64 << 10, 64 << 10},
		{"inf", maxCredit, maxCredit, maxCredit, maxCredit},
	} {
		var cfg Config
		var environ []string
		for _, name := range []string{"RNDV_THRESH", "ZCOPY_THRESH", "EAGER_WINDOW", "EAGER_BUDGET"} {
			environ = append(environ, "GUCX_"+name+"="+c.value)
		}
		require.NoError(t, config.FromEnv(environ, cfg.Table()), c.value)
		require.NoError(t, cfg.Validate(), c.value)
		assert.Equal(t, c.rndv, cfg.rndvThresh(), c.value)
		assert.Equal(t, c.zcopy, cfg.zcopyThresh(), c.value)
		assert.Equal(t, c.window, cfg.eagerWindow(), c.value)
		assert.Equal(t, c.budgetBytes, cfg.eagerBudget(), c.value)
	}
}
