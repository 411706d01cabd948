package ucp_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/all"
)

// The tests of this file show the rows of "Tuning by symptom" in docs/operations.md: the counter rises with the symptom, and the
// setting removes it.

// with returns a set of transports that are opened with a configuration.
func with(c all.Config, tls ...string) tlsets.Set {
	s := tlsets.Real(tls[0], tls...)
	s.Open = func(testing.TB) (a, b []uct.Component) { return tlsets.Components(c), tlsets.Components(c) }
	return s
}

// burst sends n messages of size bytes while the receiver makes no progress, after the connection has the window of the
// configuration. It returns how much a counter of the sender rises meanwhile.
func burst(t *testing.T, p *ucppair.Pair, window int64, n, size int, counter string) uint64 {
	t.Helper()
	const tag = 3
	require.NoError(t, p.Finish(p.A.EP.TagSend(tag, nil, nil)))
	require.NoError(t, p.Finish(p.B.W.TagRecv(nil, tag, exact, nil, nil)))
	p.Until(func() bool { return p.A.EP.Info().Credit.Left > window/2 }) // the first window is smaller
	before := counters(p.A.W)[counter]
	sends := make([]*ucp.Request, n)
	for i := range sends {
		var err error
		sends[i], err = p.A.EP.TagSend(tag, testenv.Pattern(size, i), nil)
		require.NoError(t, err)
	}
	rise := counters(p.A.W)[counter] - before
	got := make([]byte, size)
	for i, r := range sends {
		require.NoError(t, p.Finish(p.B.W.TagRecv(got, tag, exact, nil, nil)))
		testenv.RequireBytes(t, testenv.Pattern(size, i), got)
		require.NoError(t, p.Finish(r, nil))
	}
	return rise
}

// TestTuning_EagerWindow: a burst waits for credit if it is larger than the window.
func TestTuning_EagerWindow(t *testing.T) {
	rise := func(window config.MemSize) uint64 {
		p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{EagerWindow: window}).Both().Warm()
		return burst(t, p, int64(window), 150, 1000, "worker.waits_for_credit")
	}
	assert.Positive(t, rise(64<<10))
	assert.Zero(t, rise(1<<20))
}

// TestTuning_Queues: a burst waits for resources if it is longer than the queue of the transport.
func TestTuning_Queues(t *testing.T) {
	const window = 1 << 20
	rise := func(c all.Config, tls string, n, size int) uint64 {
		p := ucppair.New(t, with(c, tls), ucp.Config{EagerWindow: window}).Both().Warm()
		return burst(t, p, window, n, size, "worker.waits_for_resources")
	}
	t.Run("sm", func(t *testing.T) {
		var c all.Config
		c.SM.FIFOSize = 64
		assert.Positive(t, rise(c, "sm", 300, 8))
		c.SM.FIFOSize = 1024
		assert.Zero(t, rise(c, "sm", 300, 8))
	})
	t.Run("tcp", func(t *testing.T) {
		var c all.Config
		c.TCP.SegSize, c.TCP.SndBuf, c.TCP.RcvBuf = 4<<10, 4<<10, 4<<10
		c.TCP.TxBuf = 16 << 10
		assert.Positive(t, rise(c, "tcp", 500, 1000))
		c.TCP.TxBuf = 1 << 20
		assert.Zero(t, rise(c, "tcp", 500, 1000))
	})
}

// TestTuning_RegisteredMemory: a large message is copied if its memory is not registered, and fetched by a get if it is.
func TestTuning_RegisteredMemory(t *testing.T) {
	const size = tlsets.RndvThresh + 5000
	for _, set := range []tlsets.Set{fakes("like rc+ud"), tlsets.Real("sm", "sm"), tlsets.Real("tcp", "tcp"), tlsets.Real("rc", `\rc`)} {
		t.Run(set.Name, func(t *testing.T) {
			cfg := ucp.Config{RCache: ucp.RCacheConfig{Enable: config.No}, RndvScheme: "get_zcopy"}
			p := ucppair.New(t, set, cfg).Both().Warm()
			send := func(from, to []byte, fromMem, toMem *ucp.Mem) {
				copy(from, testenv.Pattern(size, 1))
				clear(to)
				r, err := p.A.EP.TagSend(7, from, &ucp.OpParams{Mem: fromMem})
				require.NoError(t, err)
				require.NoError(t, p.Finish(p.B.W.TagRecv(to, 7, exact, nil, &ucp.OpParams{Mem: toMem})))
				require.NoError(t, p.Finish(r, nil))
				testenv.RequireBytes(t, from, to)
			}
			send(make([]byte, size), make([]byte, size), nil, nil)
			all := counters(p.B.W)
			assert.EqualValues(t, 1, all["worker.fetched_by_copies"])
			assert.Zero(t, all["worker.fetched_by_get"])

			send(p.A.Mem.Bytes()[:size], p.B.Mem.Bytes()[:size], p.A.Mem, p.B.Mem)
			all = counters(p.B.W)
			assert.EqualValues(t, 1, all["worker.fetched_by_copies"])
			assert.EqualValues(t, 1, all["worker.fetched_by_get"])
		})
	}
}

// TestTuning_SpinPolls: a worker that waits for messages sleeps, unless the setting is negative.
func TestTuning_SpinPolls(t *testing.T) {
	const messages = 100
	for spin, sleeps := range map[int]bool{1: true, -1: false} {
		p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{SpinPolls: spin}).Both().Warm()
		var received atomic.Int64
		p.A.W.OnActive(1, func(*ucp.ActiveMessage) { received.Add(1) })
		ctx, cancel := context.WithCancel(t.Context())
		var served sync.WaitGroup
		served.Go(func() {
			if err := p.A.W.Serve(ctx); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		for sent := int64(0); sent < messages || sleeps && counters(p.A.W)["worker.sleeps"] == 0; {
			require.NoError(t, ucppair.Release(p.B.EP.SendActive(1, nil, []byte{1}, nil)))
			sent++
			testenv.ProgressWithin(t, testenv.Watchdog, func() bool { p.B.W.Progress(); return received.Load() == sent })
		}
		cancel()
		served.Wait()
		assert.Equal(t, sleeps, counters(p.A.W)["worker.sleeps"] > 0, "%d", spin)
	}
}

// TestTuning_WhyNotSM: Explain has the reason for which processes of one host use tcp.
func TestTuning_WhyNotSM(t *testing.T) {
	set := tlsets.Real("sm+tcp", "sm", "tcp")
	set.Open = func(t testing.TB) (a, b []uct.Component) {
		var c all.Config
		c.SM.SocketDir = testenv.SocketDir(t)
		a = tlsets.Components(c)
		c.SM.SocketDir = testenv.SocketDir(t)
		return a, tlsets.Components(c)
	}
	p := ucppair.New(t, set, ucp.Config{}).Connect().Warm()
	info := p.A.EP.Info()
	require.Len(t, info.Lanes, 1)
	assert.Equal(t, "tcp", info.Lanes[0].Transport)
	assert.Contains(t, info.String(), "SOCKET_DIR is another directory")
}
