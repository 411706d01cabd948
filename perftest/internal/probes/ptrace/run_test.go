package ptrace

import (
	"context"
	"errors"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
)

// trace runs a scenario and returns copies of its windows. It skips the test if ptrace is forbidden.
func trace(t *testing.T, scenario string, maxSteps int) ([]Window, error) {
	t.Helper()
	var windows []Window
	err := Run(t.Context(), program(scenario, maxSteps), func(w Window) error {
		w.Steps = slices.Clone(w.Steps)
		windows = append(windows, w)
		return nil
	})
	skipForbidden(t, err)
	return windows, err
}

func program(scenario string, maxSteps int) Program {
	return Program{
		Path: SelfPath, Args: os.Args[:1], MaxSteps: maxSteps,
		Env:  append(os.Environ(), childEnv+"="+scenario, "GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1"),
		File: []*os.File{nil, nil, nil},
	}
}

func skipForbidden(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, ErrForbidden) || errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
}

// function returns the function of an address, without inlined ones.
func function(pc uint64) string {
	if f := runtime.FuncForPC(uintptr(pc)); f != nil {
		return f.Name()
	}
	return ""
}

// count returns the number of instructions of w in functions with the given suffix.
func count(w Window, suffix string) (n int) {
	for _, s := range w.Steps {
		if strings.HasSuffix(function(s.PC), suffix) {
			n++
		}
	}
	return n
}

// preempted reports whether the scheduler has preempted the goroutine, as it may have requested before the other
// threads were stopped.
func preempted(w Window) bool { return count(w, "runtime.newstack") > 0 }

func TestRun_KnownCount(t *testing.T) {
	empty, err := trace(t, "empty", 0)
	require.NoError(t, err)
	require.Len(t, empty, 5)
	known, err := trace(t, "known", 0)
	require.NoError(t, err)
	require.Len(t, known, 5)
	for i, w := range known {
		assert.Equal(t, KnownLen, count(w, "ptrace.known"), "window %d", i)
	}
	for i, w := range empty {
		assert.Zero(t, count(w, "ptrace.known"), "window %d", i)
	}
}

// undisturbed returns at least two windows of a run of a scenario that the scheduler has not interrupted. The first
// window of a run is warm-up, of the tables of the race detector.
func undisturbed(t *testing.T, scenario string) (windows []Window) {
	t.Helper()
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		all, err := trace(t, scenario, 0)
		require.NoError(t, err)
		windows = slices.DeleteFunc(all[1:], preempted)
		return len(windows) > 1
	})
	return windows
}

func TestRun_EveryRepetitionEqual(t *testing.T) {
	testenv.SkipRace(t, "the detector is part of what is stepped through")
	for _, scenario := range []string{"work", "threads", "long"} {
		t.Run(scenario, func(t *testing.T) {
			windows := undisturbed(t, scenario)
			want := windows[0].Steps
			assert.Positive(t, count(windows[0], ".triangle"))
			for i, w := range windows {
				assert.True(t, slices.Equal(want, w.Steps), "window %d: %d instructions, want %d",
					i, len(w.Steps), len(want))
				assert.Zero(t, w.Syscalls, "window %d", i)
			}
		})
	}
}

func TestRun_Tag(t *testing.T) {
	windows, err := trace(t, "work", 0)
	require.NoError(t, err)
	require.Len(t, windows, 20)
	for _, w := range windows {
		assert.Equal(t, uint64(3), w.Tag)
	}
}

func TestRun_DroppedWindow(t *testing.T) {
	windows, err := trace(t, "drop", 0)
	require.NoError(t, err)
	require.Len(t, windows, 2)
	for _, w := range windows {
		assert.Equal(t, uint64(7), w.Tag)
		assert.Equal(t, KnownLen, count(w, "ptrace.known"))
	}
}

func TestRun_OtherThreadsRunFromSyscallOn(t *testing.T) {
	for _, tc := range []struct {
		scenario string
		windows  int
	}{{"syscall", 3}, {"wait", 2}, {"spawn", 2}} {
		t.Run(tc.scenario, func(t *testing.T) {
			windows, err := trace(t, tc.scenario, 0)
			require.NoError(t, err)
			require.Len(t, windows, tc.windows)
			for i, w := range windows {
				assert.Positive(t, w.Syscalls, "window %d", i)
			}
		})
	}
}

func TestRun_DelaysSignalToEndOfWindow(t *testing.T) {
	windows, err := trace(t, "signal", 0)
	require.NoError(t, err)
	require.Len(t, windows, 3)
	for i, w := range windows {
		assert.Zero(t, count(w, "runtime.sigtramp"), "window %d", i)
		assert.Positive(t, count(w, ".triangle"), "window %d", i)
	}
}

func TestRun_ChildFails(t *testing.T) {
	for _, tc := range []struct {
		scenario string
		want     string
		windows  int
		maxSteps int
	}{
		{"exit", "exit code 3", 0, 0},
		{"stopped", "exit code 4", 0, 0},
		{"fault", "exit code 2", 0, 0}, // the runtime's panic
		{"loose end", errNoBegin.Error(), 1, 0},
		{"nested", "Begin within a window", 0, 0},
		{"endless", "no End within 5000 instructions of Begin(0)", 0, 5000},
	} {
		t.Run(tc.scenario, func(t *testing.T) {
			windows, err := trace(t, tc.scenario, tc.maxSteps)
			assert.ErrorContains(t, err, tc.want)
			assert.Len(t, windows, tc.windows)
		})
	}
}

func TestRun_CallbackError(t *testing.T) {
	stop := errors.New("enough")
	err := Run(t.Context(), program("work", 0), func(Window) error { return stop })
	skipForbidden(t, err)
	assert.ErrorIs(t, err, stop)
	assertNoChild(t)
}

func TestRun_Canceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Run(ctx, program("hang", 0), func(Window) error { return nil })
	skipForbidden(t, err)
	assert.ErrorIs(t, err, context.Canceled)
	assertNoChild(t)
}

// TestRun_KilledInStep kills the child while its threads are stopped and one of them is stepped.
func TestRun_KilledInStep(t *testing.T) {
	for _, scenario := range []string{"work hard", "endless"} {
		t.Run(scenario, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			p := program(scenario, math.MaxInt)
			err := Run(ctx, p, func(Window) error { return nil })
			skipForbidden(t, err)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assertNoChild(t)
		})
	}
}

// assertNoChild checks that Run has also waited for a killed child.
func assertNoChild(t *testing.T) {
	t.Helper()
	_, err := unix.Wait4(-1, nil, unix.WNOHANG|unix.WALL, nil)
	assert.ErrorIs(t, err, unix.ECHILD)
}

func TestRun_NoProgram(t *testing.T) {
	p := program("work", 0)
	p.Path = "/nonexistent/program"
	err := Run(t.Context(), p, func(Window) error { return nil })
	skipForbidden(t, err)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestRun_AffinityRestored(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &before))
	_, err := trace(t, "empty", 0)
	require.NoError(t, err)
	require.NoError(t, unix.SchedGetaffinity(0, &after))
	assert.Equal(t, before, after)
}

func TestTraced_Outside(t *testing.T) {
	b, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	assert.Equal(t, tracerPID(b) != 0, Traced())
}

func TestTracerPID(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     int
	}{
		{"none", "Name:\tx\nTracerPid:\t0\nUid:\t0\n", 0},
		{"traced", "Name:\tx\nTracerPid:\t4711\nUid:\t0\n", 4711},
		{"absent", "Name:\tx\n", 0},
		{"garbage", "TracerPid:\tabc\n", 0},
		{"empty", "", 0},
	} {
		t.Run(tc.name, func(t *testing.T) { assert.Equal(t, tc.want, tracerPID([]byte(tc.in))) })
	}
}

func TestExitError(t *testing.T) {
	assert.Equal(t, "traced child: exit code 7", (&ExitError{unix.WaitStatus(7 << 8)}).Error())
	assert.Equal(t, "traced child: killed by SIGKILL", (&ExitError{unix.WaitStatus(unix.SIGKILL)}).Error())
	assert.NoError(t, exitError(0))
}
