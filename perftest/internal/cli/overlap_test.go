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

func TestOverlap_Model(t *testing.T) {
	testenv.SkipRace(t, "in virtual time one goroutine runs at a time")
	plot := filepath.Join(t.TempDir(), "overlap.svg")
	args := []string{"overlap", "-q", "--model", "connectxddr", "--protocols", "rput,rget", "-s", "1k,64k", "-o", "csv", "--plot", plot}
	code, first, errs := perftest(t, args...)
	require.Equal(t, exitOK, code, errs)
	code, second, errs := perftest(t, args...)
	require.Equal(t, exitOK, code, errs)
	assert.Equal(t, first, second)
	lines := strings.Split(strings.TrimSpace(first), "\n")
	assert.Len(t, lines, 1+2*2*3)
	assert.Contains(t, lines[0], "side,protocol,size,availability,overhead_us")
	assert.NotContains(t, lines[0], "device_us", "there is no real CPU time")
	drawn, err := os.ReadFile(plot)
	require.NoError(t, err)
	for _, word := range []string{"isend: availability", "both: overhead", "rput", "rget"} {
		assert.Contains(t, string(drawn), word)
	}
}

// TestOverlap_Real runs two processes, which the command starts.
func TestOverlap_Real(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	code, out, errs := perftest(t, "overlap", "-q", "--protocols", "rget", "--sides", "irecv", "-s", "8,64k", "-n", "3", "--rounds", "1")
	require.Equal(t, exitOK, code, errs)
	out = strings.Join(strings.Fields(out), " ") // the width of columns depends on the results
	for _, word := range []string{"fabric shm, real time", "Device us", "irecv rget", "65536"} {
		assert.Contains(t, out, word)
	}
}

func TestOverlap_Refuses(t *testing.T) {
	refuses(t, "overlap -q", map[string]string{
		"--protocols eager":              "rput",
		"--sides top":                    "isend",
		"-s 0":                           "size",
		"-s 2g":                          "size",
		"-n -1":                          "want no number below 0",
		"-w -1":                          "iterations",
		"--rounds -1":                    "rounds",
		"--model connectx9":              "connectxddr",
		"--model connectxddr,Speed=1":    "CopyBandwidth",
		"--model connectxddr,PollCall=0": "at least 1",
		"-o xml":                         "format",
		"--plot x.pdf":                   ".svg",
		"rest":                           "unknown command",
	})
}

func TestSP_Model(t *testing.T) {
	testenv.SkipRace(t, "in virtual time one goroutine runs at a time")
	args := strings.Fields("sp -q --model connectxddr --class S --ranks 4 --nodes 2 --protocols rput,rget --factor 2 --steps 1 -o csv")
	code, first, errs := perftest(t, args...)
	require.Equal(t, exitOK, code, errs)
	code, second, errs := perftest(t, args...)
	require.Equal(t, exitOK, code, errs)
	assert.Equal(t, first, second)
	lines := strings.Split(strings.TrimSpace(first), "\n")
	require.Len(t, lines, 3)
	assert.Contains(t, lines[0], "class,ranks,nodes,factor,protocol,seconds,relative")
	assert.True(t, strings.HasPrefix(lines[1], "S,4,2,2,rput,"), lines[1])
	refuses(t, "sp -q --model connectxddr", map[string]string{
		"--class X": "class", "--protocols am": "rput", "--ranks 5": "5", "--steps 0": "steps", "--factor 0": "factor",
		"--model connectx9": "connectxddr", "-x rc": "--transport cannot be used with --model", "--costs": "--costs cannot", "--in-process": "--in-process cannot", "--nodes 100": "nodes", "-o xml": "format",
	})
}
