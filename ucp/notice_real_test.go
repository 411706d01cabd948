package ucp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/tlsets"
)

// TestNotice_RealTransports: ud carries the reason and is polled rarely; rc is polled each time.
func TestNotice_RealTransports(t *testing.T) {
	for _, tls := range []string{`\rc`, "rc_mlx5", `\xrc`, "xrc_mlx5"} {
		set := tlsets.Real(tls, tls)
		t.Run(tls, func(t *testing.T) {
			p := newPair(t, set, Config{})
			p.both().warm()
			p.idle()
			p.b.failEP(t)
			for range 100 { // the device has it
				p.b.w.Progress()
			}
			p.until(func() bool { return p.a.ep.Err() != nil })
			p.a.requirePeerReason(t, p.a.ep.Err())
			require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
		})
	}
}
