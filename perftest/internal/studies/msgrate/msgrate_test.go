package msgrate

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

func measure(t *testing.T, fabric softhca.Fabric, queues mlx5.Config, cfg Config) Outcome {
	t.Helper()
	o, err := Measure(t.Context(), &RealTime{Fabric: fabric}, queues, cfg)
	require.NoError(t, err)
	assert.Positive(t, o.Rates.Total)
	require.Len(t, o.Rates.PerThread, o.Config.Threads)
	for _, r := range o.Rates.PerThread {
		assert.Positive(t, r)
	}
	assert.Equal(t, o.Counts.WQEs, uint64(o.Config.Threads*o.Config.Messages))
	return o
}

func TestMeasure_Loop(t *testing.T) {
	o := measure(t, softhca.FabricLoop, mlx5.Config{}, Config{Threads: 2, Messages: 1000, Inline: true})
	t.Logf("%+v", o)
}

func TestMeasure_Shm(t *testing.T) {
	o := measure(t, softhca.FabricShm, mlx5.Config{}, Config{Threads: 2, Messages: 1000, Inline: true})
	t.Logf("%+v", o)
}

// One goroutine can drive all senders in any order, as the scheduler of virtual time does. Threads that share a QP
// and a CQ never deadlock.
func TestStep_AnyOrder(t *testing.T) {
	devs, err := (&RealTime{Fabric: softhca.FabricLoop}).Devices(1, mlx5.Config{})
	require.NoError(t, err)
	s, err := Open(devs[0], nil, Config{Threads: 8, Messages: 640, Plan: endpoint.MPIThreads.Plan(8)})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	random := rand.New(rand.NewPCG(1, 2))
	left := slices.Clone(s.Threads)
	for len(left) > 0 {
		i := random.IntN(len(left))
		more, err := left[i].Step()
		require.NoError(t, err)
		if !more {
			left = slices.Delete(left, i, i+1)
		}
	}
	assert.Equal(t, slices.Repeat([]int64{640}, 8), s.Messages())
	require.NoError(t, s.Verify())
}

func TestStep_NoAllocation(t *testing.T) {
	for name, cfg := range map[string]Config{
		"inline":   {Inline: true},
		"gathered": {},
		"shared":   {Threads: 2, Plan: endpoint.MPIThreads.Plan(2)},
	} {
		t.Run(name, func(t *testing.T) {
			devs, err := (&RealTime{Fabric: softhca.FabricLoop}).Devices(1, mlx5.Config{})
			require.NoError(t, err)
			cfg.Messages = 1 << 30
			s, err := Open(devs[0], nil, cfg)
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close()) }()
			testenv.NoAllocs(t, "step", func() {
				if _, err := s.Threads[0].Step(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}
