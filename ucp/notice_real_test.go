package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// TestNotice_RealTransports: ud carries the reason and is polled rarely; rc is polled each time.
func TestNotice_RealTransports(t *testing.T) {
	for _, tls := range []string{`\rc`, "rc_mlx5", `\xrc`, "xrc_mlx5"} {
		set := tlsets.Real(tls, tls)
		t.Run(tls, func(t *testing.T) {
			reasonArrives(t, ucs.StatusRemoteInvalid, func(t *testing.T) error {
				p := ucppair.New(t, set, ucp.Config{})
				p.Both().Warm()
				idle(p)
				failEP(t, &p.B)
				p.Until(func() bool { return p.A.EP.Err() != nil })
				err := p.A.EP.Err()
				require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
				return err
			})
		})
	}
}
