package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/uct/all"
)

func TestContext_Resources(t *testing.T) {
	for env, want := range map[string][]string{
		"TLS=tcp,self":   {"self", "tcp"},
		"TLS=rc_x":       {"rc_mlx5"},
		"TLS=rc_x,xrc":   {"rc_mlx5", "xrc", "xrc_mlx5"},
		"TLS=rc_x,xrc_x": {"rc_mlx5", "xrc_mlx5"},
		"TLS=^sm,ud":     {"rc", "rc_mlx5", "self", "tcp"},
		"TLS=ib":         {"rc", "ud", "rc_mlx5", "ud_mlx5"},
		"NET_DEVICES=lo": {"sm", "self", "tcp"},
	} {
		c, err := ucp.NewContext(ucppair.FromEnv(t, env), all.Components()...)
		require.NoError(t, err)
		var got []string
		for _, r := range c.Resources() {
			got = append(got, r.Transport)
		}
		assert.Equal(t, want, got, env)
		require.NoError(t, c.Close())
	}
}
