package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct/all"
	"github.com/gucx/gucx/uct/tcp"
)

// TestContext_NoSuchTCPDevice: a tcp device in the configuration that does not exist is an error if tcp may be used,
// also together with other transports.
func TestContext_NoSuchTCPDevice(t *testing.T) {
	comps := func() all.Config { return all.Config{TCP: tcp.Config{Devices: []string{"lo", "nosuch0"}}} }
	for _, tls := range []config.List{{}, config.Allow("tcp", "sm"), config.Deny("sm")} {
		_, err := ucp.NewContext(ucp.Config{TLS: tls}, tlsets.Components(comps())...)
		require.ErrorIs(t, err, ucs.ErrInvalidParam)
		assert.ErrorContains(t, err, `GUCX_TCP_DEVICES`)
	}
	c, err := ucp.NewContext(ucp.Config{TLS: config.Allow("self")}, tlsets.Components(comps())...)
	require.NoError(t, err)
	require.NoError(t, c.Close())
}
