package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/perftest/internal/layers/device"
)

// The command runs over a fake kernel. Without an adapter it skips with the reason.
func TestHardwareCheck(t *testing.T) {
	if list, err := device.Adapters("loop"); err == nil && len(list) == 0 {
		code, _, errs := perftest(t, "hardware-check")
		assert.Equal(t, exitSkipped, code)
		assert.Contains(t, errs, "no device of the kernel's driver mlx5")
	}
	t.Setenv(device.FakeEnv, "direct")
	code, out, errs := perftest(t, "hardware-check", "-n", "10", "--timeout", "30s")
	require.Equal(t, exitOK, code, errs)
	assert.Contains(t, out, "hardware check of mlx5_fake0 port 1")
	assert.Contains(t, out, "ok    write, BlueFlame")
	assert.Contains(t, out, "0 of 25 steps failed")
	code, out, _ = perftest(t, "hardware-check", "-d", "softhca-loop", "-n", "10", "--timeout", "30s")
	assert.Equal(t, exitOK, code, out)
	code, _, errs = perftest(t, "hardware-check", "-d", "mlx5_9")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, `no device "mlx5_9"`)
	code, _, _ = perftest(t, "hardware-check", "-n", "0")
	assert.Equal(t, exitUsage, code)
}
