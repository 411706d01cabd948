package layers

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/internal/race"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/layers/device"
	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/measure/bench"
	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/measure/tick"
	"github.com/gucx/gucx/perftest/internal/peers/oob"
	"github.com/gucx/gucx/perftest/internal/peers/session"
	"github.com/gucx/gucx/perftest/internal/peers/target"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newSession returns a session whose target is a goroutine. Initiator and target spin and alternate: with one
// CPU they switch goroutines; with more, each has a thread and may wait for a time slice of the kernel if
// other processes use the CPUs.
func newSession(t *testing.T, set layer.Set) *session.Session {
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	a, b, err := oob.Pipe()
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() {
		served <- target.Serve(context.Background(), b, set, target.Options{HelloTimeout: time.Minute, Beside: true})
	}()
	s, err := session.New(t.Context(), a, set, session.Options{Beside: true})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, s.Close())
		assert.NoError(t, <-served)
	})
	return s
}

// calibrated is the clock of all tests of this package.
var calibrated = sync.OnceValues(tick.Calibrate)

// measure runs a plan and returns its records and the omitted rows.
func measure(t *testing.T, plan bench.Plan, s *session.Session) ([]result.Record, []bench.Skip) {
	clock, err := calibrated()
	require.NoError(t, err)
	r := bench.Runner{Plan: plan, Session: s, Clock: clock, Step: func(string, int) {}}
	records, err := r.Run(t.Context())
	require.NoError(t, err)
	return records, r.Skips()
}

func TestEveryLayer_RunsEveryTestOnEveryFabric(t *testing.T) {
	for _, c := range []struct {
		name   string
		sizes  []int
		ops    int
		window int
	}{
		{"windows longer than a send queue", []int{1, 8, 128, 129, 8193}, 300, 300},
		{"more than the inline budget", []int{300_000}, 1, 4},
	} {
		for _, fabric := range device.Fabrics() {
			t.Run(c.name+"/"+fabric, func(t *testing.T) {
				if fabric != device.Fabrics()[0] {
					testenv.SkipShort(t, "the other fabric runs the same code")
				}
				plan := bench.Plan{Tests: oneSided(), Sizes: c.sizes, Layers: Names(), Transport: "rc", Strict: true,
					Fabric: fabric, Iterations: c.ops, Warmup: 10, Rounds: 1, Window: c.window}
				records, skips := measure(t, plan, newSession(t, Config{}.Set()))
				assert.Equal(t, len(Names())*plan.Cells(), len(records))
				assert.Empty(t, skips)
			})
		}
	}
}

// oneSided returns the tests that every layer supports at any size.
func oneSided() []bench.Test {
	return slices.DeleteFunc(bench.Tests(), func(t bench.Test) bool { return t.Kind.TwoSided() })
}

func TestEveryLayer_DoesNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	s := newSession(t, Config{}.Set())
	for _, name := range Names() {
		c, err := s.Open(t.Context(), name, oob.Params{Transport: "rc", Fabric: "loop", MemLen: 1 << 16})
		require.NoError(t, err)
		for _, kind := range []layer.Kind{layer.Put, layer.Get, layer.Add, layer.FAdd, layer.CSwap, layer.Flush} {
			for _, size := range []int{8, 4096, 1 << 16} {
				if kind.Atomic() && size != layer.WordLen {
					continue
				}
				op, err := c.Op(layer.Spec{Kind: kind, Size: size, Window: 1})
				require.NoError(t, err)
				var failed error
				window := func() {
					for range 100 {
						failed = errors.Join(failed, op.Post(), op.Flush())
					}
				}
				window()
				assert.Zero(t, testing.AllocsPerRun(10, window), "%s %v of %d bytes", name, kind, size)
				assert.NoError(t, failed)
			}
		}
	}
}

func TestEveryLayer_RejectsMalformedAddresses(t *testing.T) {
	set := Config{}.Set()
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			c, err := set.Open[name](layer.Config{Transport: "rc", Fabric: "loop", MemLen: 4096, Context: t.Context()})
			require.NoError(t, err)
			defer func() { assert.NoError(t, c.Close()) }()
			good, err := c.Address()
			require.NoError(t, err)

			_, err = c.Op(layer.Spec{Kind: layer.Put, Size: 1, Window: 1})
			assert.ErrorContains(t, err, "not connected")
			for n := range len(good) {
				assert.Error(t, c.Connect(good[:n]), "cut to %d bytes", n)
			}
			assert.Error(t, c.Connect(append(good, 0)))
		})
	}
}

func TestEveryLayer_ErrorListsDevices(t *testing.T) {
	set := Config{}.Set()
	for _, name := range Names() {
		for _, c := range []struct {
			cfg  layer.Config
			want string
		}{
			{layer.Config{Transport: "rc", Fabric: "loop", Device: "mlx5_9", MemLen: 1}, "mlx5_9"},
			{layer.Config{Transport: "rc", Fabric: "ether", MemLen: 1}, "ether"},
		} {
			_, err := set.Open[name](c.cfg)
			assert.ErrorContains(t, err, c.want, "%s", name)
		}
	}
}

func TestFromEnv(t *testing.T) {
	c, err := FromEnv([]string{"GUCX_RC_TX_QUEUE_LEN=64", "HOME=/"}, gucx.Own{})
	require.NoError(t, err)
	assert.Equal(t, 64, c.UCT.RC.TxDepth)
	_, err = FromEnv([]string{"GUCX_RC_TX_QUEUE_LN=64"}, gucx.Own{})
	assert.ErrorContains(t, err, "TX_QUEUE_LEN")
}
