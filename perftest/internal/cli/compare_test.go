package cli

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/measure/affinity"
	"github.com/gucx/gucx/perftest/internal/studies/compare"
)

// TestCompareUCX_RunsBothPrograms checks that both programs run, not their results.
func TestCompareUCX_RunsBothPrograms(t *testing.T) {
	if _, err := exec.LookPath("ucx_perftest"); err != nil {
		t.Skip(compare.ErrMissing)
	}
	cpus, err := affinity.Allowed()
	require.NoError(t, err)
	if len(cpus) < 2 {
		t.Skip("needs two CPUs")
	}
	t.Setenv(asPerftest, "1")
	testenv.SkipSweep(t, "starts some twenty pairs of processes of another program, each of which spins")
	code, out, errs := perftest(t, "compare-ucx", "-q", "--only", "^(self/put_pp|sm/am_lat)", "--rounds", "1",
		"--time", "100us", "--limit", testenv.Watchdog.String(), "-o", "json")
	require.Equal(t, exitOK, code, errs)
	d := json.NewDecoder(strings.NewReader(out))
	var conditions compare.Conditions
	require.NoError(t, d.Decode(&conditions))
	assert.NotEqual(t, "unknown", conditions.UCX)
	var names []string
	for d.More() {
		var r struct {
			Name  string
			Phase compare.Phase
			Pairs []compare.Pair
		}
		require.NoError(t, d.Decode(&r))
		if len(names) == 0 || names[len(names)-1] != r.Name {
			names = append(names, r.Name)
		}
		assert.NotEmpty(t, r.Phase)
		assert.NotEmpty(t, r.Pairs, "a row without pairs")
		for _, p := range r.Pairs {
			assert.Positive(t, p.UCXNS)
			assert.Positive(t, p.OursNS)
		}
	}
	assert.Equal(t, []string{"sm", "self", "sm"}, names, "rows of UCT, then of UCP")
}

func TestCompareUCX_MissingIsSkipped(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	code, _, errs := perftest(t, "compare-ucx", "-q")
	if code == exitFailure && strings.Contains(errs, "two different CPUs") {
		t.Skip(errs)
	}
	assert.Equal(t, exitSkipped, code, errs)
	assert.Contains(t, errs, "ucx-utils")
}

// TestCompareUCX_ScriptSkips gives the script a PATH without UCX.
func TestCompareUCX_ScriptSkips(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("the script is for bash")
	}
	dir := t.TempDir()
	for _, tool := range []string{"dirname", "readlink"} {
		path, err := exec.LookPath(tool)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(path, filepath.Join(dir, tool)))
	}
	cmd := exec.CommandContext(t.Context(), bash, "../../compare-ucx")
	cmd.Env = []string{"PATH=" + dir}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit), "%v", err)
	assert.Equal(t, exitSkipped, exit.ExitCode())
	assert.Contains(t, string(out), "ucx-utils")
}

func TestMain_RegisteredMemory(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	for _, transport := range []string{"sm", "rc", "tcp", "self"} {
		code, out, errs := perftest(t, with(quick, "-o", "json", "-x", transport, "--registered", "-t", "put_lat,get_lat")...)
		require.Equal(t, exitOK, code, errs)
		run, recs := records(t, out)
		assert.Equal(t, "mapped", run.Settings.Memory)
		require.Len(t, recs, 4, "two tests and sizes")
		for _, r := range recs {
			assert.Equal(t, "uct", r.Layer)
		}
	}
}

// TestMain_Memory measures messages, puts and gets on each class of memory. The data is checked.
func TestMain_Memory(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	for _, memory := range layer.MemoryNames() {
		for _, transport := range []string{"sm", "rc", "tcp", "self"} {
			t.Run(memory+"/"+transport, func(t *testing.T) {
				if transport != "sm" && transport != "rc" {
					testenv.SkipSweep(t, "one more transport")
				}
				code, out, errs := perftest(t, "-q", "-n", "20", "-w", "2", "--rounds", "1", "-s", "8,64k", "-o", "json", "-x", transport,
					"--memory", memory, "--layers", "ucp", "-t", "tag_lat,am_lat,am_mr,put_lat,get_lat")
				require.Equal(t, exitOK, code, errs)
				run, recs := records(t, out)
				assert.Equal(t, memory, run.Settings.Memory)
				assert.Len(t, recs, 10, "five tests and two sizes")
			})
		}
	}
}

// TestMain_MemoryLayers: without --layers the layers with the class of memory are measured.
func TestMain_MemoryLayers(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	for memory, want := range map[string][]string{"alloc": {"uct", "ucp"}, "mapped": {"uct", "ucp"}, "plain": {"ucp"}} {
		code, out, errs := perftest(t, with(quick, "-o", "json", "-x", "sm", "--memory", memory, "-t", "am_lat", "-s", "8")...)
		require.Equal(t, exitOK, code, errs)
		run, _ := records(t, out)
		assert.Equal(t, want, run.Settings.Layers)
	}
}
