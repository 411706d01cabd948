package testenv

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Readable reports whether a descriptor is readable, or becomes readable within wait. A signal, with which the runtime
// preempts a goroutine, interrupts the poll, which is repeated.
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
