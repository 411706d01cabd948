package testenv

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// NeedDescriptors skips the test if the process may not have n file descriptors, for a test with many peers in one
// process.
func NeedDescriptors(t testing.TB, n uint64) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < n {
		t.Skipf("needs %d descriptors, and %d are allowed (%v)", n, limit.Cur, err)
	}
}

// WithoutDescriptors calls f while the process cannot open a file descriptor. Open ones remain open. It affects tests
// that run in parallel.
func WithoutDescriptors(t testing.TB, f func()) {
	t.Helper()
	const standard = 3 // input, output, errors: these are open
	limitDescriptors(t, standard, func() {
		if _, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != unix.EMFILE {
			t.Fatalf("a file opens without descriptors: %v", err)
		}
		f()
	})
}

// WithDescriptors calls f while the process can open n more file descriptors than it has now, shared with tests that
// run in parallel.
func WithDescriptors(t testing.TB, n int, f func()) {
	t.Helper()
	limit := 0
	for free := 0; free < n; limit++ {
		if _, err := unix.FcntlInt(uintptr(limit), unix.F_GETFD, 0); err == unix.EBADF {
			free++
		}
	}
	limitDescriptors(t, uint64(limit), f)
}

// limitDescriptors calls f while new descriptors must be below limit.
func limitDescriptors(t testing.TB, limit uint64, f func()) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	}()
	f()
}

// OpenFiles returns the number of file descriptors of the process, including one to count them.
func OpenFiles(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
