package ucp

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestServe_HandlerPanics: the panic of a handler reaches who has called Serve, and a deferred Close
// does not hide it by waiting for that call. Close of sm and self panics as well.
func TestServe_HandlerPanics(t *testing.T) {
	for _, set := range []transports{fakes("like rc+ud", likeRC(), likeUD()), real("rc", `\rc`), real("rc_mlx5", "rc_mlx5"), real("tcp", "tcp")} {
		t.Run(set.name, func(t *testing.T) {
			p := newPair(t, set, Config{}).connect()
			p.b.w.OnActive(1, func(*ActiveMessage) { panic("the handler") })
			r, err := p.a.ep.SendActive(1, nil, []byte("data"), nil)
			require.NoError(t, err)
			r.Release()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); _ = p.a.w.Serve(ctx) }()
			defer func() { cancel(); <-done }()
			require.PanicsWithValue(t, "the handler", func() {
				defer func() { require.NoError(t, p.b.w.Close()) }()
				_ = p.b.w.Serve(ctx)
			})
		})
	}
}
