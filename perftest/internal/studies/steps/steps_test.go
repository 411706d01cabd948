package steps

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// counter counts to its limit; it fails at fail, and never ends with limit 0.
type counter struct {
	n, limit, fail int
	began          *atomic.Int32
}

var errBroken = errors.New("broken")

func (c *counter) Step() (bool, error) {
	c.n++
	if c.n == 1 && c.began != nil {
		c.began.Add(1)
	}
	if c.n == c.fail {
		return true, errBroken
	}
	return c.n != c.limit, nil
}

func (c *counter) Idle() bool { return c.n%2 == 0 }

func TestRun(t *testing.T) {
	counters := []*counter{{limit: 1}, {limit: 10}, {limit: 1000}}
	times, err := Run(t.Context(), []Stepper{counters[0], counters[1], counters[2]})
	require.NoError(t, err)
	for i, c := range counters {
		assert.Equal(t, c.limit, c.n)
		assert.LessOrEqual(t, times.Begin[i], times.End[i])
	}
}

func TestRun_FirstErrorStopsAllThreads(t *testing.T) {
	_, err := Run(t.Context(), []Stepper{&counter{}, &counter{fail: 5}, &counter{}})
	require.ErrorIs(t, err, errBroken)
}

func TestRun_ContextStopsAllThreads(t *testing.T) {
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	var began atomic.Int32
	done := make(chan error)
	go func() {
		_, err := Run(ctx, []Stepper{&counter{began: &began}, &counter{began: &began}})
		done <- err
	}()
	for began.Load() < 2 {
		runtime.Gosched()
	}
	cancel(why)
	require.ErrorIs(t, <-done, why)
}
