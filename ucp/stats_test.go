package ucp_test

import (
	"context"
	"expvar"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/engine"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs/stats"
)

var _ expvar.Var = (*stats.Node)(nil)

func TestStats_CountFailures(t *testing.T) {
	p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.Connect().Warm()
	have := func() map[string]uint64 { // without those of classes of EPs
		all := counters(p.A.W)
		maps.DeleteFunc(all, func(path string, _ uint64) bool { return strings.HasPrefix(path, "worker/ep@") })
		return all
	}
	none := map[string]uint64{"worker.closed_lanes": 0, "worker.left_peers": 0, "worker.idle_closed_lanes": 0, "worker.reopened_eps": 0, "worker.waits_for_resources": 0, "worker.waits_for_credit": 0, "worker.announced_messages": 0, "worker.fetched_by_get": 0, "worker.fetched_by_put": 0, "worker.fetched_by_copies": 0, "worker.bad_messages": 0, "worker.dropped_messages": 0, "worker.broken_lanes": 0, "worker.failed_eps": 0, "worker.replaced_lanes": 0, "worker.lane_retries": 0, "worker.returned_lanes": 0, "worker.repeated_transfers": 0, "worker.expired_eps": 0, "worker.evicted_eps": 0, "worker.rejected_eps": 0, "worker.refused_peers": 0, "worker.sleeps": 0}
	assert.Equal(t, none, have(), "fakes have no counters")

	p.A.W.Handler(wire.AMWireup)([]byte("X"), nil)
	idle(p)
	assert.Equal(t, uint64(1), counters(p.A.W)["worker.bad_messages"])

	for _, i := range f.Ifaces[2:] { // b's
		i.Kill()
	}
	p.Until(func() bool { return p.A.EP.Err() != nil })
	after := counters(p.A.W)
	assert.Positive(t, after["worker.broken_lanes"])
	assert.Equal(t, uint64(1), after["worker.failed_eps"])
}

func TestStats_Sleeps(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.A.W.Engine().Spin.Fixed = engine.YieldPolls
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- p.A.W.Serve(ctx) }()
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool { return counters(p.A.W)["worker.sleeps"] > 0 })
	cancel()
	assert.ErrorIs(t, <-served, context.Canceled)
}

// TestStats_OfTransports: the counters of transports are below those of the worker. Any goroutine may read them while
// the worker is used, and after it has closed.
func TestStats_OfTransports(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("all"), ucp.Config{})
	p.Connect()
	var readers sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	readers.Go(func() {
		for ctx.Err() == nil {
			_ = p.A.W.Stats().String()
		}
	})
	p.Warm()
	stop()
	readers.Wait()
	all := counters(p.A.W)
	for _, name := range []string{"worker/self@memory.no_handler", "worker/sm@memory.malformed_links", "worker/tcp@lo.no_handler",
		"worker/rc@softhca0:1.no_handler", "worker/ud@softhca0:1.strays", "worker/ud_mlx5@softhca0:1.resends"} {
		n, there := all[name]
		assert.True(t, there, "%s in %v", name, all)
		assert.Zero(t, n, name)
	}
	w, err := p.A.Ctx.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	before := w.Stats().Snapshot()
	require.NoError(t, w.Close())
	assert.Equal(t, before, w.Stats().Snapshot())
	assert.Equal(t, stats.Value{Name: "bad_messages"}, before.Counters[0])
}
