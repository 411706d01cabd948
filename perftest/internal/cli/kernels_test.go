package cli

import (
	"encoding/csv"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/studies/kernel"
)

// quickKernels are small problems.
var quickKernels = []string{
	"su3 -q -n 4 -w 2 --turn 2 --lattice 4x4x4x4",
	"lj -q -n 4 -w 2 --turn 2 --cells 4x4x4",
}

// requireKernel checks the CSV of a run.
func requireKernel(t *testing.T, out, ranks string, transports ...string) {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	require.NoError(t, err, out)
	require.Len(t, rows, 1+len(transports))
	at := map[string]int{}
	for i, name := range rows[0] {
		at[name] = i
	}
	for i, r := range rows[1:] {
		assert.Equal(t, transports[i], r[at["transport"]])
		assert.Equal(t, ranks, r[at["ranks"]])
		assert.Equal(t, "true", r[at["checked"]])
		assert.Equal(t, rows[1][at["state"]], r[at["state"]])
		assert.NotEqual(t, "0", r[at["messages"]])
	}
}

func TestKernels_InProcess(t *testing.T) {
	for _, args := range quickKernels {
		code, out, errs := perftest(t, strings.Fields(args+" -x sm,rc_mlx5 --in-process -o csv")...)
		require.Equal(t, exitOK, code, errs)
		requireKernel(t, out, "2", "sm", "rc_mlx5")
	}
}

func TestKernels_Processes(t *testing.T) {
	testenv.SkipShort(t, "starts processes that compute")
	for _, args := range quickKernels {
		code, out, errs := perftest(t, strings.Fields(args+" -o json")...)
		require.Equal(t, exitOK, code, errs)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		require.Len(t, lines, 3)
		for i, name := range []string{"rc", "rc_mlx5"} {
			var r kernel.Row
			require.NoError(t, json.Unmarshal([]byte(lines[1+i]), &r))
			assert.Equal(t, name, r.Transport)
			assert.Positive(t, r.MeanNS)
			assert.NotZero(t, r.Result.State)
		}
	}
}

// TestKernels_Weak: with weak scaling each rank has the given problem.
func TestKernels_Weak(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	for i, problem := range []string{"4 x 4 x 4 x 8 sites, cut into 1 x 1 x 1 x 2", "512 atoms in 4 x 4 x 8 cells, cut into 1 x 1 x 2"} {
		code, out, errs := perftest(t, strings.Fields(quickKernels[i]+" -x sm --in-process --scaling weak")...)
		require.Equal(t, exitOK, code, errs)
		assert.Contains(t, out, problem)
		assert.Contains(t, strings.Join(strings.Fields(out), " "), "the same over each transport and on one rank, bit for bit")
	}
}

// TestKernels_Mpiexec: ranks of a process manager print one table.
func TestKernels_Mpiexec(t *testing.T) {
	mpiexec := testenv.Command(t, "mpiexec")
	for _, args := range quickKernels {
		out, err := exec.CommandContext(t.Context(), mpiexec, strings.Fields("-n 2 "+os.Args[0]+" "+args+" -x sm -o csv")...).Output()
		require.NoError(t, err)
		requireKernel(t, string(out), "2", "sm")
	}
}

func TestKernels_Refuse(t *testing.T) {
	refuses(t, "su3 -q", map[string]string{
		"--lattice 8x8x8":       "want 4 numbers",
		"--lattice 8x8x8xa":     "want 4 numbers from 1",
		"--lattice 8x8x8x7":     "want even numbers",
		"--ranks 7":             "7 ranks cannot share",
		"--mass 0":              "mass 0",
		"--residual 2":          "residual 2",
		"--scaling both":        "there are strong, weak",
		"-x rc,rc":              "duplicate transport rc",
		"-x nothing":            "transport",
		"--transport= -q":       "no transport",
		"-n 0":                  "0 iterations",
		"-w 1":                  "want 1 or more after 2",
		"--turn 0":              "turns of 0",
		"--ranks 0":             "0 ranks",
		"-o paper":              "paper",
		"--lattice 20000x2x2x2": "from 1 to 10000",
	})
	refuses(t, "lj -q", map[string]string{
		"--cells 3x3x3":    "smaller than twice",
		"--cells 10x10":    "want 3 numbers",
		"--ranks 1000":     "domains are smaller",
		"--step 0":         "time step 0",
		"--temperature -1": "temperature -1",
		"--skin NaN":       "skin NaN",
	})
}
