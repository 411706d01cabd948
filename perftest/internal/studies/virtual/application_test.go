package virtual

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/studies/dgemm"
	"github.com/gucx/gucx/perftest/internal/studies/endpoints"
	"github.com/gucx/gucx/perftest/internal/studies/msgrate"
	"github.com/gucx/gucx/perftest/internal/studies/stencil"
	"github.com/gucx/gucx/perftest/internal/studies/steps"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// Both applications, with small problems.
func dgemmOn(rig msgrate.Rig) msgrate.Measurer { return &dgemm.Bench{Rig: rig, N: 16, Tile: 4} }

func stencilOn(rig msgrate.Rig) msgrate.Measurer {
	return &stencil.Bench{Rig: rig, Problem: stencil.Problem{Rows: 8, Cols: 32, Iterations: 3, Points: 1, Ranks: 2, Threads: 4}}
}

func applicationConfig(c endpoint.Category) msgrate.Config {
	return msgrate.Config{Threads: 4, Inline: true, LockCQ: true, Plan: c.Plan(4)}
}

// The result is checked, the model sees every message, and each run has the same figures.
func TestApplications(t *testing.T) {
	testenv.SkipRace(t, "in virtual time one goroutine runs at a time")
	for name, on := range map[string]func(msgrate.Rig) msgrate.Measurer{"dgemm": dgemmOn, "stencil": stencilOn} {
		for _, c := range endpoint.Categories() {
			t.Run(name+"/"+c.String(), func(t *testing.T) {
				first, second := ConnectX4(), ConnectX4()
				a, err := on(first).Measure(t.Context(), mlx5.Config{}, applicationConfig(c))
				require.NoError(t, err)
				b, err := on(second).Measure(t.Context(), mlx5.Config{}, applicationConfig(c))
				require.NoError(t, err)
				assert.Equal(t, a.Rates, b.Rates)
				assert.Equal(t, first.Stats(), second.Stats())
				assert.GreaterOrEqual(t, first.Stats().Messages, uint64(a.Rates.Messages))
				assert.Equal(t, first.Stats().Messages, first.Stats().Completions, "each message must have a completion")
				assert.Zero(t, a.Rates.CPU)
			})
		}
	}
}

// A category with atomics executes them also if each process has one thread, and so is slower than a category
// without.
func TestStencil_AtomicsOfOneThread(t *testing.T) {
	testenv.SkipRace(t, "in virtual time one goroutine runs at a time")
	study := endpoints.Study{Base: msgrate.Config{Inline: true, LockCQ: true}, Rounds: 1, Ranks: 4, Threads: []int{1},
		Categories: []endpoint.Category{endpoint.MPIEverywhere, endpoint.Static, endpoint.MPIThreads}}
	bench := &stencil.Bench{Rig: ConnectX4(), Problem: stencil.Problem{Rows: 32, Cols: 64, Iterations: 3, Points: 1, Ranks: 4, Threads: 1}}
	rows, err := study.Run(t.Context(), bench, nil)
	require.NoError(t, err)
	require.Len(t, rows, 3)
	assert.InDelta(t, 1, rows[1].Relative, 0.01, "rate without shared objects")
	assert.Less(t, rows[2].Relative, 0.95)
}

// lazy is a rig that does not run its threads.
type lazy struct{ *Rig }

func (lazy) Run(_ context.Context, threads []steps.Stepper) (steps.Times, error) {
	n := len(threads)
	return steps.Times{Begin: make([]time.Duration, n), End: make([]time.Duration, n)}, nil
}

// Verification detects a result without puts.
func TestApplications_Verify(t *testing.T) {
	for name, on := range map[string]func(msgrate.Rig) msgrate.Measurer{"dgemm": dgemmOn, "stencil": stencilOn} {
		_, err := on(lazy{ConnectX4()}).Measure(t.Context(), mlx5.Config{}, applicationConfig(endpoint.Dynamic))
		assert.ErrorIs(t, err, msgrate.ErrData, name)
	}
}

// Each node of the stencil has a separate NIC: with twice the threads the rates are the same.
func TestDevices_SeparateNICs(t *testing.T) {
	testenv.SkipRace(t, "in virtual time one goroutine runs at a time")
	rate := func(nodes int) float64 {
		rig := ConnectX4()
		devs, err := rig.Devices(nodes, mlx5.Config{})
		require.NoError(t, err)
		var threads []steps.Stepper
		for _, dev := range devs {
			s, err := msgrate.Open(dev, nil, msgrate.Config{Threads: 16, Messages: 320, Inline: true})
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close()) }()
			threads = append(threads, s.Steppers()...)
		}
		times, err := rig.Run(t.Context(), threads)
		require.NoError(t, err)
		messages := make([]int64, len(threads))
		for i := range messages {
			messages[i] = 320
		}
		return msgrate.NewRates(messages, times).Total / float64(nodes)
	}
	assert.InEpsilon(t, rate(1), rate(2), 0.1, "rate of a node; with a single NIC it would be half")
}
