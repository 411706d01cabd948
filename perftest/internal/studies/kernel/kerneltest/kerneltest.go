// Package kerneltest runs a kernel on ranks that are goroutines of a test.
package kerneltest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/studies/kernel"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/ucpgroup"
)

// Run executes the given number of steps of a kernel on n ranks and returns the result, which must be the same at all ranks. Each
// rank makes its kernel with newKernel.
func Run(t *testing.T, newKernel kernel.Maker, n, steps int) kernel.Result {
	t.Helper()
	owner, err := gucx.Open()
	require.NoError(t, err)
	defer func() { require.NoError(t, owner.Close()) }()
	results, errs := make([]kernel.Result, n), make([]error, n)
	var wait sync.WaitGroup
	for q, b := range ucpgroup.InProcess(n) {
		w, err := owner.NewWorker(ucp.WorkerConfig{})
		require.NoError(t, err)
		defer func() { require.NoError(t, w.Close()) }()
		wait.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), testenv.Watchdog)
			defer cancel()
			results[q], errs[q] = compute(ctx, newKernel, w, b, steps)
		})
	}
	wait.Wait()
	require.NoError(t, errors.Join(errs...))
	for _, r := range results {
		require.Equal(t, results[0], r)
	}
	return results[0]
}

func compute(ctx context.Context, newKernel kernel.Maker, w *ucp.Worker, b ucpgroup.Bootstrap, steps int) (res kernel.Result, err error) {
	g, err := ucpgroup.New(ctx, w, b)
	if err != nil {
		return res, err
	}
	k, err := newKernel(kernel.NewComm(ctx, g.World()))
	for i := 0; i < steps && err == nil; i++ {
		err = k.Step()
	}
	if err == nil {
		res, err = k.Result()
	}
	return res, errors.Join(err, g.Close(ctx))
}
