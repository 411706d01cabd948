package layers

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx"
)

// Verbs take the queue lengths of the transport that is measured beside them.
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
