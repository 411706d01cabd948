package ib

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
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

// TestGIDIndex_Env: the index in the environment is the index in the GID table.
func TestGIDIndex_Env(t *testing.T) {
	for text, want := range map[string]GIDIndex{"": GIDAuto, "auto": GIDAuto, "0": GIDAt(0), "3": GIDAt(3)} {
		var c PathConfig
		var environ []string
		if text != "" {
			environ = append(environ, "GUCX_IB_GID_INDEX="+text)
		}
		require.NoError(t, config.FromEnv(environ, config.Table{Prefix: "IB", Config: &c}))
		assert.Equal(t, want, c.GIDIndex, text)
	}
}
