package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
)

// sleepers are transports between processes, with different types of descriptors.
var sleepers = []string{"sm", "tcp"}

// TestSleep_BothProcesses: with -E sleep a thread of either process is blocked in poll(2) between two messages.
func TestSleep_BothProcesses(t *testing.T) {
	for _, x := range sleepers {
		t.Run(x, func(t *testing.T) {
			if x != "sm" {
				testenv.SkipShort(t, furtherRun)
			}
			if _, err := os.ReadFile("/proc/thread-self/syscall"); err != nil {
				t.Skipf("needs a kernel that shows the system calls of threads: %v", err)
			}
			p := start(t, "-x", x, "-E", "sleep", "-t", "am_lat", "-s", "8", "-n", "1000000000", "--rounds", "1000000", "-w", "1")
			p.line(t, "am_lat")
			for _, pid := range []int{p.Process.Pid, onlyChild(t, p.Process.Pid)} {
				testenv.ProgressWithin(t, testenv.Watchdog, func() bool { return blockedInPoll(t, pid) })
			}
		})
	}
}

// blockedInPoll reports whether a thread of a process is blocked in ppoll(2), by which unix.Poll waits; the Go runtime
// does not call it.
func blockedInPoll(t *testing.T, pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	require.NoError(t, err)
	require.NotEmpty(t, threads, "the process has exited")
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrPermission) {
			t.Skipf("no permission to read the system calls of other processes: %v", err)
		}
		if strings.HasPrefix(string(text), fmt.Sprint(unix.SYS_PPOLL, " ")) { // the file of a thread that has exited is empty
			return true
		}
	}
	return false
}

// TestSleep_Results: all tests work with -E sleep, except the one whose puts do not wake the target, and results contain
// the mode.
func TestSleep_Results(t *testing.T) {
	for _, x := range sleepers {
		t.Run(x, func(t *testing.T) {
			if x != "sm" {
				testenv.SkipShort(t, furtherRun)
			}
			code, out, errs := perftest(t, with(short, "-x", x, "-E", "sleep", "-t", "all", "-s", "8", "--rounds", "1")...)
			require.Equal(t, exitOK, code, errs)
			assert.Contains(t, errs, "1 rows omitted (put_pp, ucp: a put does not wake a sleeping target)")
			run, recs := records(t, out)
			assert.Equal(t, "sleep", run.Settings.Wait)
			assert.Equal(t, []string{"ucp"}, run.Settings.Layers)
			assert.NotEmpty(t, recs)
		})
	}
	code, out, errs := perftest(t, with(short, "-x", "sm", "-E", "sleep", "-t", "am_lat", "-s", "8", "-o", "table")...)
	require.Equal(t, exitOK, code, errs)
	assert.Contains(t, out, "both sides slept")
}

func TestSleep_Refuses(t *testing.T) {
	refuses(t, "-q", map[string]string{
		"-E nap":                  "-E nap: want poll or sleep",
		"-E sleep --layers uct":   "-E sleep is for the ucp layer",
		"-E sleep --registered":   "-E sleep is for the ucp layer",
		"-E sleep -D zcopy":       "-E sleep is for the ucp layer",
		"-E sleep -x self":        "self is its own target",
		"-E sleep -T 2":           "--wait cannot be used",
		"client -E nap somewhere": "-E nap: want poll or sleep",
	})
	code, _, errs := perftest(t, with(short, "-x", "sm", "-E", "sleep", "-t", "put_pp", "-s", "8")...)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, errs, "a put does not wake a sleeping target")
}
