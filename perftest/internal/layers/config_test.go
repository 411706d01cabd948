package layers

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/uct/ib/dv"
)

// The verbs layer uses the queue lengths of the transport of the same run.
func TestConfig_Reliable(t *testing.T) {
	c, err := FromEnv([]string{"GUCX_RC_TX_QUEUE_LEN=8", "GUCX_RC_MLX5_TX_QUEUE_LEN=16",
		"GUCX_XRC_TX_QUEUE_LEN=32", "GUCX_XRC_MLX5_TX_QUEUE_LEN=64"}, gucx.Own{})
	require.NoError(t, err)
	assert.Equal(t, 8, c.reliable("rc").TxDepth)
	assert.Equal(t, 16, c.reliable("rc_mlx5").TxDepth)
	assert.Equal(t, 32, c.reliable("xrc").TxDepth)
	assert.Equal(t, 64, c.reliable("xrc_mlx5").TxDepth)
	assert.Equal(t, 8, c.reliable("ud").TxDepth)
}

// Verbs and uct send messages of the same lengths inline.
func TestConfig_Inline(t *testing.T) {
	for _, tc := range []struct {
		set  string
		want int
	}{
		{"GUCX_RC_MLX5_SEG_SIZE=8k", dv.MaxInline},
		{"GUCX_RC_MLX5_SEG_SIZE=200", 0}, // the default of rc
		{"GUCX_RC_MLX5_TX_MAX_INLINE=64", 64},
	} {
		c, err := FromEnv([]string{tc.set}, gucx.Own{})
		require.NoError(t, err)
		assert.EqualValues(t, tc.want, c.reliable(dv.RCName).TxMaxInline, tc.set)
	}
}
