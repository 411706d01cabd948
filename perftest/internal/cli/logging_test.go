package cli

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs/log"
)

// Every command of perftest uses the log variables of the library.
func TestLog_FollowsTheEnvironment(t *testing.T) {
	for _, args := range [][]string{
		with(quick, "-x", "self", "-t", "put_lat"), {"info", "-c"}, {"endpoints", "-q", "-n", "64", "-t", "1", "--rounds", "1"},
	} {
		file := filepath.Join(t.TempDir(), "log")
		t.Setenv("GUCX_LOG_LEVEL", "debug")
		t.Setenv("GUCX_LOG_FILE", file)
		before := log.SetLevel(log.Warn)
		code, out, errs := perftest(t, args...)
		assert.Equal(t, log.Debug, log.SetLevel(before))
		require.Equal(t, exitOK, code, errs)
		assert.FileExists(t, file)
		if args[0] == "info" {
			assert.Contains(t, out, "GUCX_LOG_LEVEL=debug")
		}
	}
}

func TestLog_RejectsInvalidValues(t *testing.T) {
	t.Setenv("GUCX_LOG_LEVEL", "loud")
	code, _, errs := perftest(t, "info")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, "want one of fatal, error, warn")

	t.Setenv("GUCX_LOG_LEVEL", "warn")
	t.Setenv("GUCX_LOG_FILE", filepath.Join(t.TempDir(), "none", "log"))
	code, _, errs = perftest(t, "info")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, "GUCX_LOG_FILE: open ")
	assert.Contains(t, errs, "no such file")
}
