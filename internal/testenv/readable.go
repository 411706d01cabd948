package testenv

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Readable reports whether a descriptor can be read, or could within wait. A signal, by which
// the runtime takes a goroutine its processor, ends a poll and is no answer.
func Readable(t testing.TB, fd int, wait time.Duration) bool {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, int(wait.Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			t.Fatalf("poll: %v", err)
		}
		return n == 1
	}
}
