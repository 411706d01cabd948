package hwcheck

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/mlx5/fakekernel"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// fake returns the device of a fake kernel.
func fake(t *testing.T, cfg fakekernel.Config) (*verbs.Device, *fakekernel.Kernel) {
	t.Helper()
	cfg.Device.Fabric = softhca.FabricLoop
	k := fakekernel.New(cfg)
	list, err := k.Devices(mlx5.Config{})
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0], k
}

func text(t *testing.T, r *Report) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, r.Write(&b))
	return b.String()
}

// All steps pass over a fake kernel, with and without calls of the driver, and leave no object in it.
func TestRun(t *testing.T) {
	for name, silicon := range map[string]bool{"direct": false, "silicon": true} {
		t.Run(name, func(t *testing.T) {
			if silicon {
				testenv.SkipRace(t, "the goroutine of the fake adapter spins")
			}
			dev, k := fake(t, fakekernel.Config{Silicon: silicon})
			report, err := Run(t.Context(), dev, Config{Port: 1, Timeout: testenv.Watchdog, Iterations: 20})
			require.NoError(t, err)
			t.Log("\n" + text(t, report))
			assert.Zero(t, report.Failed())
			assert.Len(t, report.Outcomes, len(steps)+1)
			for _, o := range report.Outcomes {
				assert.Empty(t, o.Skipped, o.Name)
			}
			assert.Empty(t, k.Live())
		})
	}
}

// The report has a failed step with its reason; steps that need it are skipped, and the others run.
func TestRun_Fails(t *testing.T) {
	for _, test := range []struct {
		name, op      string
		spoil         func(fakekernel.Call)
		fails, reason string
		skipped       string
	}{
		{"wrong key", "register memory", func(c fakekernel.Call) { c.Data(1)[8] ^= 0xff }, "write, doorbell", "vendor error", ""},
		{"no queues", "create QP", func(c fakekernel.Call) { clear(c.Data(14)) }, "create CQ and QPs", "number 0x0", "write, BlueFlame"},
		{"port down", "query port", func(c fakekernel.Call) { c.Data(1)[26] = byte(verbs.PortDown) }, "open", "port 1 is in state 1", "register memory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dev, k := fake(t, fakekernel.Config{After: func(c fakekernel.Call) {
				if c.Op == test.op {
					test.spoil(c)
				}
			}})
			report, err := Run(t.Context(), dev, Config{Port: 1, Timeout: testenv.Watchdog, Iterations: 2})
			require.NoError(t, err)
			assert.Positive(t, report.Failed())
			out := text(t, report)
			assert.Regexp(t, "FAIL +"+test.fails+" .*"+test.reason, out)
			if test.skipped != "" {
				assert.Regexp(t, "skip +"+test.skipped, out)
			}
			assert.Empty(t, k.Live())
		})
	}
}

// compare detects a byte that the device has changed outside of its destination.
func TestCompare(t *testing.T) {
	r := &rig{mem: make([]byte, 100), shadow: make([]byte, 100)}
	require.NoError(t, r.compare())
	r.mem[7], r.mem[9] = 1, 2
	assert.EqualError(t, r.compare(), "2 bytes differ, the first at 0x7: 0x1, want 0x0")
	assert.NoError(t, r.compare(), "the next step must not report the same bytes")
}
