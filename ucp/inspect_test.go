package ucp_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// serving starts a goroutine that owns the worker of a until the test ends.
func serving(t *testing.T, w *ucp.Worker) {
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = w.Serve(ctx) })
	t.Cleanup(func() { stop(); wg.Wait() })
}

// TestInspect: the owner runs the function while it sleeps, polls, or waits; many goroutines may call Inspect.
func TestInspect(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{}).Both().Warm()
	serving(t, p.A.W)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				eps := 0
				assert.NoError(t, p.A.W.Inspect(t.Context(), func(w *ucp.Worker) { eps = len(w.Info().EPs) }))
				assert.Equal(t, 1, eps)
			}
		})
	}
	wg.Wait()
}

// TestInspect_Canceled: the function does not run after Inspect has returned for its context.
func TestInspect_Canceled(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.ErrorIs(t, p.A.W.Inspect(ctx, func(*ucp.Worker) { t.Error("it has run") }), context.Canceled)
	p.Step()
}

// TestInspect_Shared: a shared worker runs functions also if no goroutine makes progress.
func TestInspect_Shared(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{}).Both().Warm()
	p.A.W.Share()
	eps := 0
	require.NoError(t, p.A.W.Inspect(t.Context(), func(w *ucp.Worker) { eps = len(w.Info().EPs) }))
	assert.Equal(t, 1, eps)
}

// TestInspect_Closed: when the worker closes, waiting calls return, and later calls are rejected.
func TestInspect_Closed(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{})
	var wg sync.WaitGroup
	ran := false
	var err error
	wg.Go(func() { err = p.A.W.Inspect(t.Context(), func(*ucp.Worker) { ran = true }) })
	require.NoError(t, p.A.W.Close())
	wg.Wait()
	if !ran {
		require.ErrorIs(t, err, ucs.ErrClosed)
	}
	require.ErrorIs(t, p.A.W.Inspect(t.Context(), func(*ucp.Worker) { t.Error("it has run") }), ucs.ErrClosed)
}

// TestInspect_Panics: if a function panics, its call and the waiting calls return.
func TestInspect_Panics(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{})
	w, ended := p.A.W, make(chan error, 2)
	for range cap(ended) {
		go func() { ended <- w.Inspect(context.Background(), func(*ucp.Worker) { panic("by the test") }) }()
	}
	require.Eventually(t, func() bool { return w.InspectionsQueued() == cap(ended) }, testenv.Watchdog, time.Millisecond)
	assert.Panics(t, func() { w.RunInspections() })
	for range cap(ended) {
		require.ErrorIs(t, <-ended, ucs.ErrClosed)
	}
}
