package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/measure/result"
)

// counting runs perftest with counters of a source. Without the permissions of the source it skips the test.
func counting(t *testing.T, source string, args ...string) (result.Run, []result.Record) {
	code, out, errs := perftest(t, with(short, append(args, "--counters="+source)...)...)
	forbidden := func(why string) bool { return strings.Contains(errs, why) }
	if source != "rusage" && slices.ContainsFunc([]string{"permi", "not supported", "unsupported", "not implemented"}, forbidden) {
		t.Skipf("no %s here: %s", source, errs)
	}
	require.Equal(t, exitOK, code, errs)
	return records(t, out)
}

func TestCounters_EverySourceAndKindOfTarget(t *testing.T) {
	process := []string{"-x", "sm", "-t", "put_lat,fadd_mr,flush", "--layers", "uct"}
	for _, c := range []struct {
		source, name string
		target       bool // the target is a process
		args         []string
	}{
		{"rusage", "process", true, process},
		{"perf", "process", true, process},
		{"bpf", "process", true, process},
		{"bpf", "itself", false, []string{"-x", "self", "-t", "put_lat,add_mr"}},
		{"bpf", "goroutine", false, []string{"-f", "loop", "-t", "put_lat,add_mr", "--layers", "uct"}},
		{"bpf", "stopped", true, []string{"--stop-peer", "-t", "put_lat,add_mr", "--layers", "uct"}},
		{"bpf", "not pinned", true, []string{"-x", "ud", "-t", "am_lat", "-c", "off"}},
	} {
		t.Run(c.source+"/"+c.name, func(t *testing.T) {
			if c.source != "rusage" {
				testenv.SkipShort(t, furtherRun)
			}
			run, recs := counting(t, c.source, append(c.args, "-s", "8")...)
			require.NotNil(t, run.Counters)
			assert.Equal(t, c.source, run.Counters.Name)
			require.NotEmpty(t, recs)
			for _, r := range recs {
				require.NotNil(t, r.Counters, r.Test)
				assert.Equal(t, r.Ops, r.Counters.Ops, "number of timed operations")
				assert.Contains(t, r.Counters.Caller.Events, result.Switches)
				assert.Equal(t, c.target, r.Counters.Target != nil)
			}
		})
	}
}

// inputOutput are system calls that move the data of a transport, or wait for it.
var inputOutput = []string{"read", "write", "readv", "writev", "sendto", "recvfrom", "sendmsg", "recvmsg", "sendmmsg", "recvmmsg",
	"poll", "ppoll", "epoll_wait", "process_vm_readv", "process_vm_writev", "ioctl"}

func TestCounters_BusyPathsOverMemoryMakeNoSystemCalls(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	for _, x := range []string{"self", "sm", "rc", "rc_mlx5"} {
		t.Run(x, func(t *testing.T) {
			_, recs := counting(t, "bpf", "-x", x, "-t", "put_lat,put_mr,get_lat,fadd_lat", "-s", "8", "-n", "2000")
			for _, r := range recs {
				for _, call := range inputOutput {
					// The runtime may call them rarely; a transport that calls them does it at least once for 64
					// operations.
					assert.Less(t, r.Counters.Caller.Calls[call], 1.0/64, "%s: %s %s", call, r.Test, r.Layer)
				}
			}
		})
	}
}

func TestCounters_MessageOverSocketsIsOneSendOnEachSide(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	_, recs := counting(t, "bpf", "-x", "tcp", "-t", "am_lat", "-s", "8", "-n", "500")
	require.NotEmpty(t, recs)
	for _, r := range recs {
		c := r.Counters
		assert.InDelta(t, 1, c.Caller.Calls["sendto"], 0.02)
		assert.InDelta(t, 1, c.Target.Calls["sendto"], 0.02)
		assert.GreaterOrEqual(t, c.Caller.Calls["recvfrom"], 0.98)
	}
}

func TestCounters_InEveryFormat(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	args := []string{"-q", "-n", "32", "-w", "4", "--rounds", "2", "-x", "self", "-t", "put_lat", "-s", "8", "--counters=rusage"}
	for format, want := range map[string]string{"table": "counters by rusage", "md": "| put_lat |", "csv": "caller_switches"} {
		code, out, errs := perftest(t, with(args, "-o", format)...)
		require.Equal(t, exitOK, code, errs)
		assert.Contains(t, out, want)
	}
}

func TestCounters_Usage(t *testing.T) {
	code, _, errs := perftest(t, with(short, "--counters=dtrace")...)
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, "auto, bpf, perf, rusage")
	code, _, errs = perftest(t, "client", "--counters")
	assert.Equal(t, exitUsage, code, "the server may be on another host")
	assert.Contains(t, errs, "unknown flag")
}
