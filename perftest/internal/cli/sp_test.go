package cli

import (
	"encoding/csv"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

// spRows runs perftest sp and returns its rows, without the head.
func spRows(t *testing.T, args string) [][]string {
	code, out, errs := perftest(t, strings.Fields("sp -q -o csv "+args)...)
	require.Equal(t, exitOK, code, errs)
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	require.NoError(t, err)
	return rows[1:]
}

func TestSP_InProcess(t *testing.T) {
	testenv.SkipShort(t, "computes in four goroutines, as tests of package sp do")
	rows := spRows(t, "-x sm --ranks 4 --protocols am,put_zcopy --in-process")
	require.Len(t, rows, 2)
	for i, protocol := range []string{"am", "put_zcopy"} {
		assert.Equal(t, []string{"S", "4", protocol}, rows[i][:3])
	}
}

func TestSP_Processes(t *testing.T) {
	testenv.SkipShort(t, "starts processes that compute")
	for _, args := range []string{"-x sm --ranks 9 --protocols am", "-x rc --ranks 4 --protocols get_zcopy"} {
		require.Len(t, spRows(t, args), 1)
	}
}

// TestSP_Mpiexec: ranks of a process manager print one table.
func TestSP_Mpiexec(t *testing.T) {
	mpiexec := testenv.Command(t, "mpiexec")
	cmd := exec.CommandContext(t.Context(), mpiexec, strings.Fields("-n 4 "+os.Args[0]+" sp -q -x sm --protocols am -o csv")...)
	out, err := cmd.Output()
	require.NoError(t, err)
	assert.Equal(t, 2, strings.Count(strings.TrimSpace(string(out)), "\n")+1, "%s", out)
}

// When a rank is killed, all ranks exit, with the reason.
func TestSP_RankKilled(t *testing.T) {
	testenv.SkipShort(t, "starts processes that compute")
	p := start(t, strings.Fields("sp --class A -x sm --ranks 4 --protocols am")...)
	p.line(t, "am") // rank 0 has completed a step
	ranks := allChildren(t, p.Process.Pid, 4)
	require.NoError(t, syscall.Kill(ranks[2], syscall.SIGKILL))
	code, text := p.wait(t)
	assert.Equal(t, exitFailure, code)
	assert.Regexp(t, "signal: killed|connection reset by remote peer", text, "error of the parent or of another rank")
	for _, pid := range ranks {
		requireGone(t, pid)
	}
}

func TestSP_Table(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	code, out, errs := perftest(t, strings.Fields("sp -q -x sm --ranks 1 --protocols am --in-process")...)
	require.Equal(t, exitOK, code, errs)
	assert.Contains(t, out, "12 x 12 x 12 points, 100 steps")
}

func TestSP_Costs(t *testing.T) {
	rows := spRows(t, "--costs --ranks 4")
	require.Len(t, rows, 10)
	assert.Equal(t, []string{"unpack", "value"}, rows[9][:2])
	code, _, errs := perftest(t, strings.Fields("sp --class W --costs --ranks 25")...)
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, "different sizes")
}

func TestSP_Refuses(t *testing.T) {
	refuses(t, "sp -q", map[string]string{
		"--class D":                       `class "D"`,
		"--ranks 2":                       "square",
		"--ranks 49":                      "cells of 1",
		"--protocols magic":               "put_zcopy",
		"-o paper":                        "paper",
		"--class S -x other":              "transport other not found",
		"--class S -x other --in-process": "transport other not found",
		"--factor 2":                      "--factor cannot be used without --model",
		"--steps 2":                       "--steps cannot be used without --model",
		"--nodes 2":                       "--nodes cannot be used without --model",
		"--seed 2":                        "--seed cannot be used without --model",
		"--costs -x sm":                   "--transport cannot be used with --costs",
	})
}
