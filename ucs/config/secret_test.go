package config

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSecret: it is read, and not printed.
func TestSecret(t *testing.T) {
	var cfg struct {
		Token Secret `env:"TOKEN" doc:"d"`
	}
	table := Table{Doc: "t", Config: &cfg}
	require.NoError(t, FromEnv([]string{"GUCX_TOKEN=swordfish"}, table))
	assert.Equal(t, "swordfish", string(cfg.Token))
	var out bytes.Buffer
	require.NoError(t, Print(&out, PrintOptions{}, table))
	fmt.Fprintf(&out, "%v %+v %#v %s", cfg.Token, cfg, cfg, cfg.Token)
	assert.NotContains(t, out.String(), "swordfish")
	assert.Contains(t, out.String(), secretText)
	assert.Empty(t, Secret("").String())
}
