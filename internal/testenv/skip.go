package testenv

import (
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// requireRDMA is the environment variable that turns a missing RDMA device from a skip into a failure, for machines
// that have one.
const requireRDMA = "REQUIRE_RDMA"

// rdmaClass is the directory in which the kernel lists RDMA devices.
const rdmaClass = "/sys/class/infiniband"

// RDMA returns the names of the RDMA devices of the kernel. It skips the test if there is none. With REQUIRE_RDMA=1 it
// fails instead.
func RDMA(t testing.TB) []string {
	t.Helper()
	return rdmaDevices(t, rdmaClass)
}

// rdmaDevices is RDMA with the directory of the devices.
func rdmaDevices(t testing.TB, class string) []string {
	t.Helper()
	entries, err := os.ReadDir(class)
	if err == nil && len(entries) > 0 {
		names := make([]string, len(entries))
		for i, e := range entries {
			names[i] = e.Name()
		}
		return names
	}
	if os.Getenv(requireRDMA) == "1" {
		t.Fatalf("%s=1, but %s has no device (%v)", requireRDMA, class, err)
	}
	t.Skipf("no RDMA device in %s (%v)", class, err)
	return nil
}

// Command skips the test unless the program is installed, and returns its path.
func Command(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("needs %s: %v", name, err)
	}
	return path
}

// SkipRace skips the test in a race build, with a reason.
func SkipRace(t testing.TB, why string) {
	t.Helper()
	if RaceEnabled {
		t.Skipf("not under the race detector: %s", why)
	}
}

// SkipCheckptr skips the test in a build with -gcflags=all=-d=checkptr, with a reason.
func SkipCheckptr(t testing.TB, why string) {
	t.Helper()
	if info, ok := debug.ReadBuildInfo(); ok && checksPointers(info.Settings) {
		t.Skipf("not with checkptr: %s", why)
	}
}

// checksPointers reports whether a build with settings has the checks.
func checksPointers(settings []debug.BuildSetting) bool {
	return slices.ContainsFunc(settings, func(s debug.BuildSetting) bool {
		return s.Key == "-gcflags" && strings.Contains(s.Value, "checkptr")
	})
}

// SkipShort skips the test with -short, with the reason why it takes long.
func SkipShort(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skipf("not with -short: %s", why)
	}
}

// SkipSweep skips the test unless sweeps are selected, with the reason why it finds little that the default tests do
// not.
func SkipSweep(t testing.TB, why string) {
	t.Helper()
	if !Sweep() {
		t.Skipf("%s; %s=1 takes it, too", why, sweepEnv)
	}
}
