package ucprpc

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	uatomic "go.uber.org/atomic"

	"github.com/gucx/gucx/internal/testenv"
)

// stormKills is the number of servers that a test kills, stormCallers the number of goroutines of each client.
const (
	stormKills   = 3
	stormCallers = 4
)

// TestStorm_Kills: servers are killed under load, while clients connect and close. Each call gets its own reply or an
// error, and none hangs.
func TestStorm_Kills(t *testing.T) {
	kills := stormKills
	if testenv.Soak() {
		kills = 100
	}
	for _, tls := range []string{"sm", "tcp"} {
		t.Run(tls, func(t *testing.T) {
			address := freshName()
			server := startServer(t, tls, address)
			c := newContext(t, tls)
			var replies uatomic.Int64
			ctx, stop := context.WithTimeout(t.Context(), 10*hang)
			defer stop()
			over := make(chan struct{})
			var all sync.WaitGroup
			for i := range 4 {
				cl := dial(t, c, address, ClientConfig{MinBackoff: time.Millisecond, MaxBackoff: 50 * time.Millisecond, WaitConnected: -1})
				for k := range stormCallers {
					all.Go(func() { stormCaller(t, ctx, cl, i*stormCallers+k, over, &replies) })
				}
			}
			for range kills {
				n := replies.Load()
				eventually(t, func() bool { return replies.Load() > n+100 })
				server.Kill(t)
				server = startServer(t, tls, address)
				short, err := Dial(ctx, c, "unix", address, ClientConfig{}) // a client that closes with calls in progress
				require.NoError(t, err)
				all.Go(func() { _, _ = short.Call(ctx, methodWait, nil, nil) })
				_, err = short.Call(ctx, methodEcho, nil, nil)
				require.NoError(t, err)
				require.NoError(t, short.Close())
			}
			n := replies.Load()
			eventually(t, func() bool { return replies.Load() > n+100 })
			close(over)
			all.Wait()
			require.NoError(t, ctx.Err(), "a call has hung")
		})
	}
}

// stormCaller makes calls of many lengths until over is closed, and cancels some of them.
func stormCaller(t *testing.T, ctx context.Context, cl *Client, seed int, over chan struct{}, replies *uatomic.Int64) {
	rng := rand.New(rand.NewPCG(1, uint64(seed)))
	lengths := []int{0, 10, 64, 500, 9000, 200_000}
	buf := make([]byte, 1000)
	for n := seed; ; n++ {
		select {
		case <-over:
			return
		default:
		}
		m := Method{Name: methodEcho.Name, Idempotent: rng.IntN(2) == 0}
		switch rng.IntN(4) {
		case 0:
			m = methodInline
		case 1:
			m = methodLarge
		}
		want := testenv.Pattern(lengths[rng.IntN(len(lengths))], n)
		callCtx, cancel := ctx, context.CancelFunc(func() {})
		if rng.IntN(8) == 0 {
			callCtx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(2000))*time.Microsecond)
		}
		got, err := cl.Call(callCtx, m, want, buf)
		cancel()
		switch {
		case err == nil:
			replies.Inc()
			if !assert.True(t, bytes.Equal(want, got), "a wrong reply of %d bytes for %d", len(got), len(want)) {
				return
			}
		case m.Idempotent && CodeOf(err) == CodeLost, CodeOf(err) == CodeFailed, CodeOf(err) == CodeBusy:
			assert.NoError(t, err)
			return
		}
	}
}
