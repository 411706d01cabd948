package testenv

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// NeedDescriptors skips the test where the process may not have n file descriptors, for one that has
// many peers in one process.
func NeedDescriptors(t testing.TB, n uint64) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < n {
		t.Skipf("needs %d descriptors, and %d are allowed (%v)", n, limit.Cur, err)
	}
}

// WithoutDescriptors calls f while the process can open no file descriptor; those that it has stay
// open. Tests that run in parallel cannot either.
func WithoutDescriptors(t testing.TB, f func()) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	const standard = 3 // input, output, errors: these are open
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: standard, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	}()
	if _, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != unix.EMFILE {
		t.Fatalf("a file opens without descriptors: %v", err)
	}
	f()
}
