package compare

import (
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/perftest/internal/measure/affinity"
)

func TestSpinners_StartAndStop(t *testing.T) {
	t.Setenv(roleVar, roleSpin)
	self, err := os.Executable()
	require.NoError(t, err)
	cpus, err := affinity.Allowed()
	require.NoError(t, err)
	stop, err := startSpinners(t.Context(), self, nil, cpus[:1])
	require.NoError(t, err)
	stop() // waits for them

	_, err = startSpinners(t.Context(), "/nonexistent", nil, cpus[:1])
	assert.ErrorContains(t, err, "idle spinner")
}

// spinner starts the command of a spinner directly.
func spinner(t *testing.T, cpu string) (cmd *exec.Cmd, stdin io.Closer) {
	t.Setenv(roleVar, roleSpin)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd = exec.CommandContext(t.Context(), self, spinName, cpu)
	stdin, err = cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return cmd, stdin
}

func TestSpin_ExitsWithParent(t *testing.T) {
	cmd, stdin := spinner(t, "0")
	require.NoError(t, stdin.Close())
	assert.NoError(t, cmd.Wait())
}

func TestSpin_RejectsInvalidCPU(t *testing.T) {
	for _, cpu := range []string{"x", "-1", "1023"} {
		cmd, _ := spinner(t, cpu)
		assert.Error(t, cmd.Wait(), cpu)
	}
}
