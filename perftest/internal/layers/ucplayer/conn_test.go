package ucplayer

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/perftest/internal/layers/device"
	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/all"
	"github.com/gucx/gucx/uct/ib/verbs"
)

func components(fabric string) []uct.Component {
	return all.Config{Devices: func() ([]*verbs.Device, error) { return device.List(fabric) }}.Components()
}

// TestNewContext_OnlyNamedTransport: a measurement of rc uses rc, although TLS=rc of ucp would
// use rc_mlx5.
func TestNewContext_OnlyNamedTransport(t *testing.T) {
	for _, tc := range []struct{ use, not string }{{"rc", "rc_mlx5"}, {"rc_mlx5", "rc"}} {
		t.Run(tc.use, func(t *testing.T) {
			c, err := New(ucp.Config{}, components).newContext(layer.Config{Transport: tc.use, Fabric: "loop"})
			require.NoError(t, err)
			defer func() { assert.NoError(t, c.Close()) }()
			w, err := c.NewWorker(ucp.WorkerConfig{})
			require.NoError(t, err)
			defer func() { assert.NoError(t, w.Close()) }()
			why, err := w.Explain(w.Address())
			require.NoError(t, err)
			assert.Regexp(t, `(?m)^rma: .*\n\* `+tc.use+`/`, why)
			assert.Regexp(t, `(?m)^  `+tc.not+`/\S+ +TLS=\\`+tc.use+` excludes it$`, why)
		})
	}
}
