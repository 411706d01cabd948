package cli

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// pidfdOpen returns a descriptor that becomes readable when the process exits.
func pidfdOpen(pid int) (int, error) { return unix.PidfdOpen(pid, 0) }

// waitReadable waits for a descriptor.
func waitReadable(fd int) error {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, -1)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// sendBytes connects, sends text and waits until the other side disconnects.
func sendBytes(t *testing.T, addr, text string) {
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, text)
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, conn) // a reset also means that the other side has disconnected
}
