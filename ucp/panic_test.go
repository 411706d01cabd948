package ucp_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
)

// TestServe_HandlerPanics: the panic of a handler propagates to the caller of Serve, and a deferred Close does not hide
// it by waiting for that call. Close of sm and self panics as well.
func TestServe_HandlerPanics(t *testing.T) {
	for _, set := range []tlsets.Set{fakes("like rc+ud"), tlsets.Real("rc", `\rc`), tlsets.Real("rc_mlx5", "rc_mlx5"), tlsets.Real("tcp", "tcp")} {
		t.Run(set.Name, func(t *testing.T) {
			p := ucppair.New(t, set, ucp.Config{}).Connect()
			p.B.W.OnActive(1, func(*ucp.ActiveMessage) { panic("the handler") })
			r, err := p.A.EP.SendActive(1, nil, []byte("data"), nil)
			require.NoError(t, err)
			r.Release()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); _ = p.A.W.Serve(ctx) }()
			defer func() { cancel(); <-done }()
			require.PanicsWithValue(t, "the handler", func() {
				defer func() { require.NoError(t, p.B.W.Close()) }()
				_ = p.B.W.Serve(ctx)
			})
		})
	}
}
