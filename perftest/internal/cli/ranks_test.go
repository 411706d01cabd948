package cli

import (
	"context"
	"encoding/csv"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/studies/ranks"
	"github.com/gucx/gucx/ucp/ucpgroup"
	"github.com/gucx/gucx/ucp/ucpgroup/pmi"
	"github.com/gucx/gucx/ucs"
)

// requireRanks checks the CSV of a run of all tests at two sizes.
func requireRanks(t *testing.T, out, n string) {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	require.NoError(t, err, "%s", out)
	require.Len(t, rows, 1+2*len(ranks.Tests())-1)
	require.Equal(t, []string{"test", "size", "ranks"}, rows[0][:3])
	for _, r := range rows[1:] {
		assert.Equal(t, n, r[2])
		assert.NotEqual(t, "0", r[3], "%v", r)
	}
}

const quickRanks = "ranks -q -n 3 -w 1 -s 8,40k -o csv"

func TestRanksConditions_SharedCPUs(t *testing.T) {
	c := ranksConditions{Machine: result.Machine{Cores: 2}, Ranks: 4}
	assert.Contains(t, strings.Join(c.lines(), "\n"), "Warning: this host has 2 cores for 4 ranks")
	c.Ranks = 2
	assert.NotContains(t, strings.Join(c.lines(), "\n"), "Warning")
}

func TestRanks(t *testing.T) {
	code, out, errs := perftest(t, strings.Fields(quickRanks+" --ranks 3 -x sm")...)
	require.Equal(t, exitOK, code, errs)
	requireRanks(t, out, "3")
}

func TestRanks_InProcess(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	code, out, errs := perftest(t, strings.Fields(quickRanks+" --ranks 5 -x tcp --in-process")...)
	require.Equal(t, exitOK, code, errs)
	requireRanks(t, out, "5")
	code, out, errs = perftest(t, strings.Fields("ranks -q -n 3 --ranks 1 --in-process -s 8")...)
	require.Equal(t, exitOK, code, errs)
	assert.Contains(t, out, "goroutines of one process")
	assert.NotContains(t, out, "\n pingpong")
}

// TestRanks_Protocols: each test and size has a row for each protocol.
func TestRanks_Protocols(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	code, out, errs := perftest(t, strings.Fields("ranks -q -n 3 -w 2 --ranks 2 -x sm -t pingpong -s 8,40k --protocols auto,eager,put_zcopy")...)
	require.Equal(t, exitOK, code, errs)
	assert.Equal(t, 2, strings.Count(out, " put_zcopy "), out)
	assert.Contains(t, out, "+%")
}

// TestRanks_Mpiexec: perftest as ranks of MPICH's process manager.
func TestRanks_Mpiexec(t *testing.T) {
	mpiexec := testenv.Command(t, "mpiexec")
	cmd := exec.CommandContext(t.Context(), mpiexec, append([]string{"-n", "4", os.Args[0]}, strings.Fields(quickRanks)...)...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, "%s", errs.String())
	requireRanks(t, string(out), "4")
}

// TestRanks_Fails: errors on the ranks are printed, and their exit status is returned.
func TestRanks_Fails(t *testing.T) {
	code, _, errs := perftest(t, strings.Fields("ranks -q --ranks 2 -x self")...)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, errs, "on rank 1: ")
	assert.Contains(t, errs, "self memory: unreachable")
}

func TestRanks_Refuses(t *testing.T) {
	refuses(t, "ranks -q", map[string]string{
		"--ranks 0":             "0 ranks",
		"--ranks 1 -t pingpong": "needs 2 ranks",
		"-t magic":              "there are pingpong, ring",
		"-s none":               "none",
		"-n 0":                  "0 rounds after 20 to warm up: want 1 or more",
		"-o paper":              "paper",
		"-x other":              "transport other not found",
		"--protocols magic":     "get_zcopy",
		"--protocols auto,am --ranks 2 -t ring -w 1": "2 rounds to warm up",
	})
}

// TestRanks_ReportsFullDisk: the rank that prints reports the write error.
func TestRanks_ReportsFullDisk(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	for _, args := range []string{"ranks -q -n 3 -w 1 -s 8 --ranks 2 -x sm -t barrier", "sp -q -x sm --ranks 4 --protocols am"} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		require.NoError(t, err)
		defer full.Close()
		var errs strings.Builder
		cmd := rerun(&errs, strings.Fields(args)...)
		cmd.Stdout = full
		require.Error(t, cmd.Run())
		assert.Equal(t, exitFailure, cmd.ProcessState.ExitCode())
		assert.Contains(t, errs.String(), "on rank 0: write /dev/stdout: no space left on device")
		assert.NotContains(t, errs.String(), "connection reset")
	}
}

// TestLeaveJob_IgnoresClosedManager: a rank that has completed reports no error of a rank that has failed since.
func TestLeaveJob_IgnoresClosedManager(t *testing.T) {
	const n = 2
	ours, theirs := make([]net.Conn, n), make([]net.Conn, n)
	for i := range n {
		ours[i], theirs[i] = net.Pipe()
	}
	ended := make(chan error, 1)
	go func() { ended <- pmi.NewServer(theirs).Serve() }()
	boot, err := pmi.NewClient(ours[0], 0, n)
	require.NoError(t, err)
	require.NoError(t, ours[1].Close())
	var gone *ucpgroup.RankError
	require.ErrorAs(t, <-ended, &gone)
	assert.Equal(t, 1, gone.Rank)
	require.NoError(t, leaveJob(boot))
}

// TestRunTogether_Cause: the error is that of the rank that has failed, although ranks that detect the failure return
// earlier.
func TestRunTogether_Cause(t *testing.T) {
	err := runTogether(t.Context(), 2, func(ctx context.Context, b ucpgroup.Bootstrap) error {
		if b.Rank() == 0 {
			return &ucpgroup.RankError{Rank: 1, Err: ucs.ErrCanceled}
		}
		<-ctx.Done()
		return errors.New("no more paper")
	})
	require.EqualError(t, err, "on rank 1: no more paper")
}
