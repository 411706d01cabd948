package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A run that is saved twice and compared with itself has no change.
func TestCompare(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.json")
	for range 2 {
		code, _, errs := perftest(t, "-x", "self", "-q", "-t", "am_lat", "-s", "8", "-n", "100", "-w", "10", "-c", "off", "--save", file)
		require.Equal(t, exitOK, code, errs)
	}
	code, out, errs := perftest(t, "compare", file, file)
	require.Equal(t, exitOK, code, errs)
	assert.Contains(t, out, "2 runs of gucx")
	assert.Regexp(t, `am_lat .*~`, out)

	text, err := os.ReadFile(file)
	require.NoError(t, err)
	slow := filepath.Join(t.TempDir(), "b.json")
	require.NoError(t, os.WriteFile(slow, []byte(strings.ReplaceAll(string(text), `"rounds_ns":[`, `"rounds_ns":[1e6,1e6,1e6,1e6,1e6,1e6,1e6,1e6,1e6,1e6,1e6,1e6,1e6,1e6,1e6,1e6,1e6,1e6,1e6,1e6,1e6,1e6,1e6,1e6,1e6,`)), 0o600))
	code, out, errs = perftest(t, "compare", file, slow, "-o", "csv")
	assert.Equal(t, exitSlower, code)
	assert.Contains(t, out, ",true")
	assert.Contains(t, errs, "rows are slower by more than 5 %")

	code, _, errs = perftest(t, "compare", file)
	assert.Equal(t, exitUsage, code, errs)
	code, _, errs = perftest(t, "compare", file, file, "--alpha", "2")
	assert.Equal(t, exitUsage, code, errs)
	code, _, errs = perftest(t, "compare", file, t.TempDir())
	assert.Equal(t, exitFailure, code, errs)
	code, _, errs = perftest(t, "-x", "self", "-t", "am_lat", "-s", "8", "--save", t.TempDir())
	assert.Equal(t, exitUsage, code, errs)
}
