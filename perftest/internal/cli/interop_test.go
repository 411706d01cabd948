package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

// --peer measures programs that implement the protocol: here one with gucx instead of UCX.
func TestPeerUCX(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	self, err := os.Executable()
	require.NoError(t, err)
	other := filepath.Join(t.TempDir(), "other")
	require.NoError(t, os.WriteFile(other, []byte("#!/bin/sh\nexec "+self+" "+ucxSideName+"\n"), 0o700))
	code, out, errs := perftest(t, strings.Fields("-q -t tag_lat,ucp_get_bw -s 8 -n 2 -w 1 --rounds 2 -W 2 -c off --peer ucx="+other)...)
	require.Equal(t, exitOK, code, errs)
	for _, want := range []string{"nothing is pinned", "2 operations in 2 rounds", "tag_lat", "get_bw", "UCX-UCX", "gucx-UCX", "UCX-gucx", "gucx-gucx"} {
		assert.Contains(t, out, want)
	}
}

// Without UCX the command is skipped.
func TestPeerUCX_Skips(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	code, _, errs := perftest(t, "--peer", "ucx", "-q")
	assert.Equal(t, exitSkipped, code)
	assert.Contains(t, errs, "skipped: no program with UCX: gcc is not installed")
	code, out, errs := perftest(t, "info", "-d")
	require.Equal(t, exitOK, code, errs)
	assert.Contains(t, out, "perftest --peer ucx is skipped")
}

func TestPeerUCX_Refuses(t *testing.T) {
	refuses(t, "", map[string]string{
		"--peer mpi":             "--peer mpi: there is ucx",
		"--peer ucx -x sm":       "--transport cannot be used",
		"--peer ucx -T 2":        "--threads cannot be used",
		"--peer ucx -t flush":    "flush does not run with UCX; there are tag_lat",
		"--peer ucx -s 0":        "outside 1..",
		"--peer ucx -s 8 --full": "only one of them",
		"--peer ucx -W 5000":     "4096 at most",
		"--peer ucx -o yaml":     "unknown output format",
		"--peer ucx -c 1":        "want two",
		"client --peer ucx":      "unknown flag",
	})
	file := filepath.Join(t.TempDir(), "lines")
	require.NoError(t, os.WriteFile(file, []byte("a -t tag_lat -s 8 --peer ucx\n"), 0o600))
	code, _, errs := perftest(t, "-b", file)
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, "--peer cannot be used in batch files")
}
