package ucttest

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

// TestProcess_StopWaits checks that no thread of the process runs after Stop has returned.
func TestProcess_StopWaits(t *testing.T) {
	cmd := exec.Command(testenv.Command(t, "sleep"), "1000")
	require.NoError(t, cmd.Start())
	c := &process{cmd: cmd}
	for range 20 {
		require.NoError(t, c.Stop())
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
		require.NoError(t, err)
		assert.Contains(t, string(stat), ") T ")
		require.NoError(t, c.Continue())
	}
	require.NoError(t, c.Kill())
	require.NoError(t, c.Wait())
}
