package cli

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// pidfdOpen returns a descriptor that becomes readable when the process exits.
func pidfdOpen(pid int) (int, error) { return unix.PidfdOpen(pid, 0) }

// waitReadable waits for a descriptor at most so long.
func waitReadable(fd int, patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(time.Until(deadline).Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n == 0:
			return errors.New("timed out")
		default:
			return nil
		}
	}
}

// sendBytes connects, sends text and waits until the other side hangs up.
func sendBytes(t *testing.T, addr, text string) {
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, text)
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, conn) // a reset is as good as an end
}
