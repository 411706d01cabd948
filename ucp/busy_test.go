package ucp_test

import (
	"context"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	uatomic "go.uber.org/atomic"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/engine"
)

// neverIdle is a worker whose every Progress finds an event: it sends a message to itself again and again.
func neverIdle(t *testing.T) *ucp.Worker {
	t.Helper()
	p := ucppair.New(t, tlsets.Real("self", "self"), ucp.Config{})
	p.A.Dial(t, &p.A)
	arrived := 0
	p.A.W.OnActive(1, func(*ucp.ActiveMessage) {
		arrived++
		assert.NoError(t, ucppair.Release(p.A.EP.SendActive(1, nil, nil, nil)))
	})
	require.NoError(t, ucppair.Release(p.A.EP.SendActive(1, nil, nil, nil)))
	p.Until(func() bool { return arrived > 10 })
	require.Positive(t, p.A.W.Progress())
	return p.A.W
}

// TestServe_ContextEndsUnderLoad: a canceled context ends a wait also if each poll finds events.
func TestServe_ContextEndsUnderLoad(t *testing.T) {
	for name, serve := range map[string]func(w *ucp.Worker) func(context.Context) error{
		"owner":  func(w *ucp.Worker) func(context.Context) error { return w.Serve },
		"shared": func(w *ucp.Worker) func(context.Context) error { return w.Share().Serve },
	} {
		t.Run(name, func(t *testing.T) {
			served, ended := serve(neverIdle(t)), make(chan error, 1)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			go func() { ended <- served(ctx) }()
			testenv.ProgressWithin(t, testenv.Watchdog, func() bool { return len(ended) > 0 })
			assert.ErrorIs(t, <-ended, context.Canceled)
		})
	}
}

// TestSharedWorker_TurnsUnderLoad: a goroutine that waits for the worker gets it after a few polls of the goroutine
// that makes progress, also if each poll finds events.
func TestSharedWorker_TurnsUnderLoad(t *testing.T) {
	s := neverIdle(t).Share()
	ctx, cancel := context.WithCancel(t.Context())
	var polls uatomic.Int64
	ended := make(chan error, 1)
	go func() { ended <- s.Until(ctx, func() bool { polls.Inc(); return false }) }()
	waited := make([]int64, 101)
	for i := range waited {
		begin := polls.Load() + 2*engine.YieldPolls
		for polls.Load() < begin {
			runtime.Gosched()
		}
		begin = polls.Load()
		s.Do(func(*ucp.Worker) { waited[i] = polls.Load() - begin })
	}
	cancel()
	assert.ErrorIs(t, <-ended, context.Canceled)
	slices.Sort(waited)
	assert.LessOrEqual(t, waited[len(waited)/2], int64(engine.YieldPolls), "polls before the goroutine has the worker: %v", waited)
}
