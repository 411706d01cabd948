package ucp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucs"
)

// TestNotice_RealTransports: ud carries the reason and is polled rarely; rc is polled each time.
func TestNotice_RealTransports(t *testing.T) {
	for _, tls := range []string{`\rc`, "rc_mlx5", `\xrc`, "xrc_mlx5"} {
		set := tlsets.Real(tls, tls)
		t.Run(tls, func(t *testing.T) {
			reasonArrives(t, ucs.StatusRemoteInvalid, func(t *testing.T) error {
				p := newPair(t, set, Config{})
				p.both().warm()
				p.idle()
				p.b.failEP(t)
				p.until(func() bool { return p.a.ep.Err() != nil })
				err := p.a.ep.Err()
				require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
				return err
			})
		})
	}
}
