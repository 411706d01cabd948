package virtual

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/softhca/timing"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/studies/msgrate"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

const threads = 16

// applications returns a configuration with one work request per post, each with a completion.
func applications(c endpoint.Category) msgrate.Config {
	return msgrate.Config{Threads: threads, Messages: 320, Postlist: 1, Unsignaled: 1, Inline: true, LockCQ: true, Plan: c.Plan(threads)}
}

func measure(t *testing.T, rig *Rig, queues mlx5.Config, cfg msgrate.Config) msgrate.Outcome {
	t.Helper()
	testenv.SkipRace(t, "in virtual time one goroutine runs at a time")
	o, err := msgrate.Measure(t.Context(), rig, queues, cfg)
	require.NoError(t, err)
	assert.Equal(t, uint64(o.Config.Threads*o.Config.Messages), o.Counts.WQEs)
	return o
}

// The same rig has the same figures, whatever the load of the machine and the addresses of memory; for each
// category, and with payloads that the NIC reads.
func TestMeasure_Deterministic(t *testing.T) {
	for _, c := range endpoint.Categories() {
		t.Run(c.String(), func(t *testing.T) {
			cfg := applications(c)
			cfg.Inline = false
			first, second := ConnectX4(), ConnectX4()
			a, b := measure(t, first, mlx5.Config{}, cfg), measure(t, second, mlx5.Config{}, cfg)
			assert.Equal(t, a.Rates, b.Rates)
			assert.Equal(t, first.Stats(), second.Stats())
			assert.NotEqual(t, a.Rates, measure(t, first, mlx5.Config{}, cfg).Rates, "the next measurement has other start times")
		})
	}
}

// These properties follow from the model, without results of the study: categories with more sharing are not faster,
// and each has waits only for its shared objects.
func TestMeasure_CategoriesWaitWhereTheyShare(t *testing.T) {
	rates := map[endpoint.Category]float64{}
	stats := map[endpoint.Category]timing.Stats{}
	for _, c := range endpoint.Categories() {
		rig := ConnectX4()
		rates[c] = measure(t, rig, mlx5.Config{}, applications(c)).Rates.Total
		stats[c] = rig.Stats()
	}
	assert.Greater(t, rates[endpoint.TwoXDynamic], rates[endpoint.MPIEverywhere], "2xDynamic has no QP lock")
	assert.Greater(t, rates[endpoint.MPIEverywhere], rates[endpoint.SharedDynamic])
	assert.Greater(t, rates[endpoint.Static], rates[endpoint.MPIThreads])
	for c, s := range stats {
		shared := c == endpoint.SharedDynamic || c == endpoint.Static
		assert.Equal(t, shared, s.PageWait > 0, "%v: page", c)
		assert.Equal(t, c == endpoint.Static, s.RegisterLockWait > 0, "%v: register lock", c)
		assert.Equal(t, c == endpoint.MPIThreads, s.QueueLockWait > 0, "%v: QP lock", c)
	}
}

// Features determine the reads of the NIC.
func TestMeasure_Features(t *testing.T) {
	reads := func(queues mlx5.Config, cfg msgrate.Config) float64 {
		rig := ConnectX4()
		cfg.Messages = 640
		measure(t, rig, queues, cfg)
		s := rig.Stats()
		return float64(s.Reads) / float64(s.Messages)
	}
	assert.Zero(t, reads(mlx5.Config{}, msgrate.Config{Postlist: 1, Inline: true}), "BlueFlame contains the work request")
	assert.Equal(t, 1.0, reads(mlx5.Config{}, msgrate.Config{Postlist: 1}), "reads of the payload")
	assert.Equal(t, 1.0/8, reads(mlx5.Config{}, msgrate.Config{Inline: true}), "one read for eight work requests")
	noBF := reads(mlx5.Config{ShutUpBF: true}, msgrate.Config{Postlist: 1, Inline: true})
	assert.InDelta(t, 0.5, noBF, 0.5, "a read for each work request, or fewer if they queue up")
	assert.Positive(t, noBF)
}

func TestMeasure_Canceled(t *testing.T) {
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	_, err := msgrate.Measure(ctx, ConnectX4(), mlx5.Config{}, msgrate.Config{})
	require.ErrorIs(t, err, gone)
}

func TestDevice_BadParams(t *testing.T) {
	_, err := (&Rig{}).Devices(1, mlx5.Config{})
	require.ErrorContains(t, err, "PostCall")
}

func TestChange(t *testing.T) {
	r := ConnectX4()
	require.NoError(t, r.Change(""))
	assert.Equal(t, timing.ConnectX4(), r.Params)
	for list, want := range map[string]string{
		"Rails":           "name=value",
		"Rails=1,Speed=2": "Speed",
		"Rails=0":         "at least 1",
	} {
		assert.ErrorContains(t, r.Change(list), want, list)
	}
	assert.Equal(t, timing.ConnectX4(), r.Params, "a failed change must not modify parameters")
	require.NoError(t, r.Change("Rails=2,CQERead=7"))
	assert.Equal(t, 2, r.Params.Rails)
	assert.Equal(t, 7*timing.Nanosecond, r.Params.CQERead)
}
