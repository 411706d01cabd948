package ucp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/tlsets"
)

// TestNotice_RealTransports: ud, which carries the reason, is looked at now and then only, rc each
// time.
func TestNotice_RealTransports(t *testing.T) {
	for _, tls := range []string{`\rc`, "rc_mlx5", `\xrc`, "xrc_mlx5"} {
		set := tlsets.Real(tls, tls)
		t.Run(tls, func(t *testing.T) {
			p := newPair(t, set, Config{})
			p.both().warm()
			p.idle()
			p.b.failEP(t)
			for range 100 { // what it sends is with the device
				p.b.w.Progress()
			}
			p.until(func() bool { return p.a.ep.Err() != nil })
			p.a.wantWhy(t, p.a.ep.Err())
			require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
		})
	}
}
